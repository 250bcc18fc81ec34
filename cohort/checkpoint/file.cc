// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

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

[[noreturn]] void throw_system(const char* operation, const std::string& path, int error) {
  throw Error(code_of(error), str_cat("[", operation, "] ", path, ": ", std::strerror(error)));
}

// Linux writes at most 2 GiB a call.
constexpr std::size_t kLargestCall = std::size_t{1} << 30;

void flush_folder(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const int descriptor =
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // the rename has happened; a folder that cannot be read is no error
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  static std::atomic<uint64_t> counter{0};
  temporary_ = str_cat(path_, ".tmp-", ::getpid(), "-", counter.fetch_add(1));
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_system("save_tensors", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(descriptor_, next, std::min(bytes, kLargestCall));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw_system("save_tensors", path_, errno);
    next += done;
    bytes -= static_cast<std::size_t>(done);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) throw_system("save_tensors", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw_system("save_tensors", path_, errno);
  ::close(descriptor_);
  descriptor_ = -1;
  flush_folder(path_);
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw_system("load_tensors", path_, errno);
  struct stat status = {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  const int error = errno;
  if (known && S_ISREG(status.st_mode)) {
    size_ = static_cast<uint64_t>(status.st_size);
    return;
  }
  ::close(descriptor_);
  if (!known) throw_system("load_tensors", path_, error);
  throw InvalidArgument(str_cat("[load_tensors] expected a regular file, got ", path_));
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(uint64_t offset, void* out, std::size_t bytes) const {
  char* next = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got =
        ::pread(descriptor_, next, std::min(bytes, kLargestCall), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system("load_tensors", path_, errno);
    if (got == 0) {
      throw DataLoss(str_cat("[load_tensors] ", path_, ": expected ", bytes, " more bytes at byte ",
                             offset, ", got the end of the file"));
    }
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

}  // namespace cohort::internal
