// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/internal/temporary.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "cohort/base/check.h"
#include "cohort/base/crc32c.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/fork_locks.h"
#include "cohort/base/logging.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/checkpoint/internal/manifest.h"

namespace cohort::internal::checkpoint {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kAside = ".old-";
constexpr std::string_view kLock = ".lock";
constexpr std::size_t kMachineDigits = 8;
constexpr std::size_t kRandomDigits = 16;
constexpr std::size_t kIdDigits = kMachineDigits + 1 + kRandomDigits;
constexpr auto kForeignAge = std::chrono::hours(1);
constexpr auto kLongestWait = std::chrono::minutes(2);
constexpr int kMostNames = 1000;  // tried, of which already the second is hardly needed

std::string digits(uint64_t value, std::size_t count) {
  char text[kRandomDigits + 1];
  std::snprintf(text, sizeof text, "%0*llx", static_cast<int>(count),
                static_cast<unsigned long long>(value));
  return text;
}

// Of the system since its start; containers on it have the same one.
const std::string& machine_digits() {
  static const std::string machine = [] {
    std::string boot;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
    return digits(boot.empty() ? std::random_device()() : base::crc32c(boot), kMachineDigits);
  }();
  return machine;
}

std::string new_id() {
  uint64_t value = 0;
  if (::getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
    std::random_device device;
    value = uint64_t{device()} << 32 | device();
  }
  return machine_digits() + "-" + digits(value, kRandomDigits);
}

bool is_id(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (i == kMachineDigits ? c != '-' : !is_digit) return false;
  }
  return text.size() == kIdDigits;
}

struct Parts {
  std::string base;
  std::string id;
  auto operator<=>(const Parts&) const = default;  // NOLINT(modernize-use-nullptr): its own zero
};

std::optional<Parts> parts_of(std::string_view name) {
  const bool is_lock = name.ends_with(kLock);
  if (is_lock) name.remove_suffix(kLock.size());
  const std::size_t ending = kTemporary.size() + kIdDigits;
  if (name.size() <= ending) return std::nullopt;
  const std::string_view mark = name.substr(name.size() - ending, kTemporary.size());
  const std::string_view id = name.substr(name.size() - kIdDigits);
  const bool known = mark == kTemporary || (mark == kAside && !is_lock);
  if (!known || !is_id(id)) return std::nullopt;
  return Parts{std::string(name.substr(0, name.size() - ending)), std::string(id)};
}

enum class Taken { kYes, kByAnother, kNoLocks };

Taken try_lock(int descriptor, const std::string& path) {
  struct flock all = {};
  all.l_type = F_WRLCK;
  all.l_whence = SEEK_SET;
  int error = base::fault("lock", path);
  while (error == 0 && ::fcntl(descriptor, F_OFD_SETLK, &all) != 0) {
    if (errno != EINTR) error = errno;
  }
  if (error == 0) return Taken::kYes;
  return error == EAGAIN || error == EACCES ? Taken::kByAnother : Taken::kNoLocks;
}

// Not so if somebody has removed or replaced the file between opening and locking it.
bool is_still(const std::string& path, int descriptor) {
  struct stat named = {}, open = {};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(descriptor, &open) == 0 &&
         named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

// Once for each folder.
void warn_of_no_locks(const std::string& path) {
  static base::Mutex mutex;
  [[maybe_unused]] static const bool kept = base::keep_free_over_fork(mutex);
  static std::set<std::string> warned;
  const std::string folder = folder_of(path);
  {
    const base::MutexLock lock(mutex);
    if (!warned.insert(folder).second) return;
  }
  COHORT_LOG(kWarning, "[checkpoint] ", folder,
             ": the file system has no locks: what ended processes left is not removed here, and "
             "only one process at a time may save checkpoints of one name");
}

std::optional<struct stat> status_of(const std::string& path) {
  struct stat status = {};
  return ::lstat(path.c_str(), &status) == 0 ? std::optional(status) : std::nullopt;
}

// The last change of it or of what it holds.
fs::file_time_type changed(const std::string& path) {
  std::error_code error;
  fs::file_time_type last = fs::last_write_time(path, error);
  if (error) last = fs::file_time_type::min();
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const fs::file_time_type time = fs::last_write_time(it->path(), ignored);
    if (!ignored) last = std::max(last, time);
  }
  return last;
}

/// The number that `text` writes as a program does: digits, without a sign or zeros before it.
std::optional<int64_t> plain_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool plain = error == std::errc() && value >= 0 && std::to_string(value) == text;
  return plain ? std::optional(value) : std::nullopt;
}

/// "ckpt-7.tmp-4242-0", of a process and its count: how versions before random names called it.
struct OldParts {
  std::string base;
  pid_t process = 0;
};

std::optional<OldParts> old_parts_of(std::string_view name) {
  constexpr int64_t kMostProcesses = int64_t{1}
                                     << 22;  // Linux's own limit: less than an id's digits
  const std::size_t mark = name.rfind(kTemporary);
  if (mark == std::string_view::npos || mark == 0) return std::nullopt;
  const std::string_view ending = name.substr(mark + kTemporary.size());
  const std::size_t dash = ending.find('-');
  if (dash == std::string_view::npos || !plain_number(ending.substr(dash + 1))) return std::nullopt;
  const auto process = plain_number(ending.substr(0, dash));
  if (!process || *process < 1 || *process > kMostProcesses) return std::nullopt;
  return OldParts{std::string(name.substr(0, mark)), static_cast<pid_t>(*process)};
}

/// Whether it holds nothing but what a save writes.
bool is_unfinished_save(const std::string& path) {
  const auto status = status_of(path);
  if (!status || !S_ISDIR(status->st_mode)) return status && S_ISREG(status->st_mode);
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    const fs::path& file = it->path();
    std::error_code ignored;
    const bool ours = file.filename() == kManifestName || file.extension() == ".safetensors";
    if (!ours || it->symlink_status(ignored).type() != fs::file_type::regular) return false;
  }
  return !error;
}

/// They had no locks: it is left where it is if a process of that number runs here, and for an hour
/// in any case, for the number may be one of another machine or container.
void remove_old(const std::string& path, const OldParts& parts) {
  const bool runs =
      parts.process != ::getpid() && (::kill(parts.process, 0) == 0 || errno == EPERM);
  if (runs || !is_unfinished_save(path)) return;
  // It may be whole, and the only one: they set aside under such names, too.
  const std::string named = folder_of(path) + "/" + parts.base;
  if (status_of(path + "/" + kManifestName) && !status_of(named)) return;
  if (changed(path) >= fs::file_time_type::clock::now() - kForeignAge) return;
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

/// What one writer may have left.
class Left {
 public:
  Left(const std::string& folder, const Parts& parts)
      : named_(folder + "/" + parts.base),
        content_(str_cat(named_, kTemporary, parts.id)),
        aside_(str_cat(named_, kAside, parts.id)),
        lock_(str_cat(content_, kLock)),
        is_of_this_machine_(parts.id.starts_with(machine_digits())) {}

  void remove() const {
    const auto status = status_of(content_);
    const bool is_file = status && S_ISREG(status->st_mode);
    if (status && !is_file && !S_ISDIR(status->st_mode)) return;  // nothing that Cohort makes
    if (!is_of_this_machine_ && !is_old()) return;
    const std::string& locked = is_file ? content_ : lock_;
    const int create = is_file ? 0 : O_CREAT;
    const int descriptor =
        ::open(locked.c_str(), O_RDWR | create | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (descriptor < 0) return;
    const Taken taken = try_lock(descriptor, locked);
    if (taken == Taken::kNoLocks) warn_of_no_locks(locked);
    if (taken == Taken::kYes && is_still(locked, descriptor)) {
      if (!is_file) remove_folders();
      ::unlink(locked.c_str());
    }
    ::close(descriptor);
  }

 private:
  bool is_old() const {
    const auto last = std::max({changed(content_), changed(aside_), changed(lock_)});
    return last < fs::file_time_type::clock::now() - kForeignAge;
  }

  void remove_folders() const {
    std::error_code ignored;
    if (status_of(aside_)) {
      if (status_of(named_)) {
        fs::remove_all(aside_, ignored);
      } else {
        fs::rename(aside_, named_, ignored);
      }
    }
    fs::remove_all(content_, ignored);
  }

  const std::string named_;
  const std::string content_;
  const std::string aside_;
  const std::string lock_;
  const bool is_of_this_machine_;
};

}  // namespace

bool is_temporary(std::string_view name) { return parts_of(name).has_value(); }

std::string base_of_temporary(std::string_view name) {
  const auto parts = parts_of(name);
  return parts ? parts->base : "";
}

std::string temporary_path(const std::string& path) { return str_cat(path, kTemporary, new_id()); }

void remove_temporaries(const std::string& folder,
                        const std::function<bool(std::string_view base)>& is_ours) {
  std::set<Parts> found;
  std::vector<std::pair<std::string, OldParts>> old;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    auto parts = parts_of(it->path().filename().native());
    if (parts && is_ours(parts->base)) found.insert(std::move(*parts));
    auto old_parts = old_parts_of(it->path().filename().native());
    if (old_parts && is_ours(old_parts->base)) {
      old.emplace_back(it->path(), std::move(*old_parts));
    }
  }
  for (const Parts& parts : found) Left(folder, parts).remove();
  for (const auto& [path, old_parts] : old) remove_old(path, old_parts);
}

bool are_of_one_series(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto skip_number = [&](std::string_view& text) {
    while (!text.empty() && is_digit(text.front())) text.remove_prefix(1);
  };
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      skip_number(a);
      skip_number(b);
    } else {
      if (a.front() != b.front()) return false;
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.empty() && b.empty();
}

int create_locked(const char* operation, const std::string& path, const std::string& ending,
                  std::string& name) {
  for (int i = 0; i < kMostNames; ++i) {
    const std::string file = temporary_path(path) + ending;
    const int descriptor =
        ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno == EEXIST) continue;
    if (descriptor < 0) throw_system(operation, path, errno);
    // Somebody who clears up may have come between: then the file is theirs.
    const Taken taken = try_lock(descriptor, file);
    if (taken == Taken::kNoLocks) warn_of_no_locks(file);
    if (taken != Taken::kByAnother && is_still(file, descriptor)) {
      name = file;
      return descriptor;
    }
    ::close(descriptor);
  }
  throw_system(operation, path, EEXIST);
}

TemporaryFolder::TemporaryFolder(const char* operation, const std::string& path) {
  lock_ = create_locked(operation, path, std::string(kLock), lock_path_);
  path_ = lock_path_.substr(0, lock_path_.size() - kLock.size());
  if (::mkdir(path_.c_str(), 0777) == 0) {
    folder_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  }
  if (folder_ >= 0) return;
  const int error = errno;
  ::rmdir(path_.c_str());
  ::unlink(lock_path_.c_str());
  ::close(lock_);
  throw_system(operation, path, error);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  ::close(folder_);
  ::unlink(lock_path_.c_str());
  ::close(lock_);
}

bool TemporaryFolder::is_there() const { return is_still(path_, folder_); }

std::string TemporaryFolder::aside(const std::string& path) const {
  return str_cat(path, kAside, path_.substr(path_.size() - kIdDigits));
}

FolderLock::FolderLock(const char* operation, std::string path)
    : operation_(operation), path_(std::move(path)) {
  const auto deadline = steady_clock::now() + kLongestWait;
  std::minstd_rand random(std::random_device{}());
  while (!take()) {
    if (steady_clock::now() > deadline) {
      throw DeadlineExceeded(str_cat("[", operation_, "] ", path_,
                                     ": expected a lock within two minutes, got none: another "
                                     "process that saves into the folder holds it, and hangs"));
    }
    // Everybody who waits comes back at another time.
    std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % 10000));
  }
}

bool FolderLock::take() {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  if (descriptor_ < 0 && errno != EACCES) throw_system(operation_, path_, errno);
  if (descriptor_ < 0) {
    COHORT_LOG(kWarning, "[", operation_, "] ", path_,
               " is another user's and cannot be locked: expected no other process to save "
               "checkpoints of this name");
    return true;
  }
  const Taken taken = try_lock(descriptor_, path_);
  if (taken == Taken::kNoLocks) warn_of_no_locks(path_);
  if (taken != Taken::kByAnother && is_still(path_, descriptor_)) return true;
  close();
  return false;
}

void FolderLock::close() {
  ::close(descriptor_);
  descriptor_ = -1;
}

FolderLock::~FolderLock() {
  if (descriptor_ < 0) return;
  ::unlink(path_.c_str());
  close();
}

}  // namespace cohort::internal::checkpoint
