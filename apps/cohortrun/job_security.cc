// SPDX-License-Identifier: Apache-2.0
#include "job_security.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include "cohort/base/strings.h"
#include "cohort/rpc/job_authority.h"
#include "network.h"

namespace cohortrun {
namespace {

using cohort::str_cat;
using cohort::internal::rpc::JobAuthority;
using cohort::internal::rpc::RpcSecurity;
using cohort::internal::rpc::Secret;
using cohort::internal::rpc::TlsContext;

std::string hex_of(const Secret& secret) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : secret.bytes()) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string text_of(const Secret& secret) {
  const auto bytes = secret.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

namespace fs = std::filesystem;

constexpr const char* kFolder = "cohortrun_";
constexpr const char* kOwner = "owner";

fs::path where_secrets_are() {
  std::error_code none;
  const bool has_memory = ::access("/dev/shm", W_OK | X_OK) == 0;
  return has_memory ? fs::path("/dev/shm") : fs::temp_directory_path(none);
}

std::string new_folder() {
  const fs::path where = where_secrets_are();
  std::string name = (where / str_cat(kFolder, "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error(
        str_cat("expected to make a folder in ", where.string(), ", got: ", std::strerror(errno)));
  }
  return name;
}

// The kind of lock that children of a process do not keep for it.
bool lock_whole(int fd) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(fd, F_SETLK, &lock) == 0;
}

// A file that is locked for as long as this process lives. It has its name when it is locked: who
// sweeps must not find it before. -1, with errno.
int lock_folder(const std::string& folder) {
  const std::string name = str_cat(folder, "/", kOwner);
  const std::string early = str_cat(name, ".new");
  const int fd = ::open(early.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  if (lock_whole(fd) && ::rename(early.c_str(), name.c_str()) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

// Folders of this user's whose owner has been killed: nobody holds their lock any more. Once, for a
// process does not see locks of its own, and loses them where it looks.
void sweep() {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(where_secrets_are(), none)) {
    if (entry.path().filename().string().rfind(kFolder, 0) != 0) continue;
    struct stat status = {};
    if (::lstat(entry.path().c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
        status.st_uid != ::geteuid()) {
      continue;
    }
    const std::string owner = (entry.path() / kOwner).string();
    const int fd = ::open(owner.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) continue;
    if (lock_whole(fd)) fs::remove_all(entry.path(), none);
    ::close(fd);
  }
}

}  // namespace

std::vector<TaskSecurity> security_of_nodes(const SecuritySettings& settings,
                                            const std::string& run_id, int attempt,
                                            const std::vector<std::string>& hosts) {
  const RpcSecurity& own = settings.own;
  TaskSecurity common{.job = own.job.empty() ? str_cat(run_id, ".", attempt) : own.job,
                      .token = own.token.empty() ? hex_of(Secret::random()) : text_of(own.token),
                      .allow_insecure = settings.allow_insecure};
  const bool is_far = std::any_of(hosts.begin(), hosts.end(),
                                  [](const std::string& host) { return !is_loopback(host); });
  const bool makes_own = !own.has_tls() && (settings.tls || (is_far && !settings.allow_insecure));
  std::vector<TaskSecurity> out(hosts.size(), common);
  if (!makes_own) return out;
  const JobAuthority authority(run_id);
  for (std::size_t n = 0; n < hosts.size(); ++n) {
    const auto issued = authority.issue(hosts[n]);
    out[n].certificate = issued.certificate;
    out[n].key = issued.key;
    out[n].authority = authority.certificate();
  }
  return out;
}

TlsContext tls_between_nodes(const RpcSecurity& own) {
  if (!own.token.empty()) return TlsContext::of_secret(own.token, "cohortrun --nnodes");
  return own.has_tls() ? TlsContext::of_certificates(own) : TlsContext();
}

SecretFiles::SecretFiles(const TaskSecurity& security)
    : security_(cohort::internal::rpc::security_from_environment()) {
  security_.job = security.job;
  security_.token = Secret(security.token);
  security_.allow_insecure = security_.allow_insecure || security.allow_insecure;
  [[maybe_unused]] static const bool has_swept = (sweep(), true);
  folder_ = new_folder();
  owner_ = lock_folder(folder_);
  if (owner_ < 0) {
    const int error = errno;
    std::error_code none;
    fs::remove_all(folder_, none);
    throw std::runtime_error(
        str_cat("expected to lock a file in ", folder_, ", got: ", std::strerror(error)));
  }
  environment_ = {str_cat("COHORT_JOB_ID=", security.job), "COHORT_JOB_TOKEN",
                  str_cat("COHORT_JOB_TOKEN_FILE=", write("token", security.token))};
  if (security.allow_insecure) environment_.emplace_back("COHORT_ALLOW_INSECURE=1");
  if (security.certificate.empty()) return;
  security_.certificate = write("certificate.pem", security.certificate);
  security_.key = write("key.pem", security.key);
  security_.authority = write("authority.pem", security.authority);
  environment_.push_back(str_cat("COHORT_TLS_CERTIFICATE=", security_.certificate));
  environment_.push_back(str_cat("COHORT_TLS_KEY=", security_.key));
  environment_.push_back(str_cat("COHORT_TLS_AUTHORITY=", security_.authority));
}

SecretFiles::~SecretFiles() {
  std::error_code none;
  fs::remove_all(folder_, none);
  if (owner_ >= 0) ::close(owner_);
}

std::string SecretFiles::write(const std::string& name, const std::string& text) {
  const std::string path = str_cat(folder_, "/", name);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool good =
      fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!good) {
    std::error_code none;
    fs::remove_all(folder_, none);
    throw std::runtime_error(str_cat("expected to write ", path, ", got: ", std::strerror(error)));
  }
  return path;
}

}  // namespace cohortrun
