// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/checkpoint/internal/file.h"

namespace cohort::internal {

namespace {

ErrorCode code_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ErrorCode::kResourceExhausted;
    default:
      return ErrorCode::kUnknown;
  }
}

// Linux writes at most 2 GiB a call.
constexpr std::size_t kLargestCall = std::size_t{1} << 30;

constexpr std::string_view kTemporary = ".tmp-";

}  // namespace

void throw_system(const char* operation, const std::string& path, int error) {
  throw Error(code_of(error), str_cat("[", operation, "] ", path, ": ", std::strerror(error)));
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void flush_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return str_cat(path, kTemporary, ::getpid(), "-", counter.fetch_add(1));
}

bool is_temporary(std::string_view name) { return name.find(kTemporary) != std::string_view::npos; }

void remove_temporaries(const std::string& folder, std::string_view beginning) {
  namespace fs = std::filesystem;
  std::vector<fs::path> left;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::size_t mark = name.find(kTemporary);
    if (mark == std::string::npos || !name.starts_with(beginning)) continue;
    const int process = std::atoi(name.c_str() + mark + kTemporary.size());
    const bool runs = process > 0 && process != ::getpid() && ::kill(process, 0) == 0;
    if (!runs) left.push_back(it->path());
  }
  for (const fs::path& path : left) fs::remove_all(path, error);
}

OutputFile::OutputFile(const char* operation, std::string path, std::string shown)
    : operation_(operation), path_(std::move(path)), shown_(std::move(shown)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_system(operation_, shown_, errno);
}

OutputFile::~OutputFile() { ::close(descriptor_); }

void OutputFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(descriptor_, next, std::min(bytes, kLargestCall));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw_system(operation_, shown_, errno);
    next += done;
    bytes -= static_cast<std::size_t>(done);
  }
}

void OutputFile::flush() {
  if (::fsync(descriptor_) != 0) throw_system(operation_, shown_, errno);
}

AtomicFile::AtomicFile(const char* operation, std::string path)
    : operation_(operation),
      path_(std::move(path)),
      temporary_(temporary_name(path_)),
      file_(operation, temporary_, path_) {}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::commit() {
  file_.flush();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw_system(operation_, path_, errno);
  committed_ = true;
  // The rename has happened; a folder that cannot be read is no error.
  flush_folder(folder_of(path_));
}

InputFile::InputFile(const char* operation, std::string path)
    : operation_(operation), path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw_system(operation_, path_, errno);
  struct stat status = {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  const int error = errno;
  if (known && S_ISREG(status.st_mode)) {
    size_ = static_cast<uint64_t>(status.st_size);
    return;
  }
  ::close(descriptor_);
  if (!known) throw_system(operation_, path_, error);
  throw InvalidArgument(str_cat("[", operation_, "] expected a regular file, got ", path_));
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(uint64_t offset, void* out, std::size_t bytes) const {
  char* next = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got =
        ::pread(descriptor_, next, std::min(bytes, kLargestCall), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system(operation_, path_, errno);
    if (got == 0) {
      throw DataLoss(str_cat("[", operation_, "] ", path_, ": expected ", bytes,
                             " more bytes at byte ", offset, ", got the end of the file"));
    }
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

}  // namespace cohort::internal
