// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/internal/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/base/errno_code.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/write_guard.h"
#include "cohort/checkpoint/internal/temporary.h"

namespace cohort::internal::checkpoint {

namespace {

// Linux writes at most 2 GiB a call.
constexpr std::size_t kLargestCall = std::size_t{1} << 30;

// What a file system says of a request that it has not got.
bool is_unsupported(int error) {
  return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP || error == EBADF;
}

bool is_damage(int error) {
  return error == EIO || error == EREMOTEIO || error == ENODATA || error == EUCLEAN ||
         error == EBADMSG || error == ENXIO;
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

void throw_system(const char* operation, const std::string& path, int error) {
  throw Error(base::code_of_errno(error),
              str_cat("[", operation, "] ", path, ": ", std::strerror(error)));
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void flush_folder(const char* operation, const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 && errno == EACCES) return;
  if (descriptor < 0) throw_system(operation, folder, errno);
  int error = base::fault("fsync", folder);
  if (error == 0 && ::fsync(descriptor) != 0) error = errno;
  ::close(descriptor);
  if (error != 0 && !is_unsupported(error)) {
    throw Error(base::code_of_errno(error),
                str_cat("[", operation, "] ", folder, ": failed to flush the folder: ",
                        std::strerror(error), ": what was written may be lost in a power cut"));
  }
}

void make_folders(const char* operation, const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> missing;
  std::string path = folder;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::error_code ignored;
  for (; !fs::exists(path, ignored); path = folder_of(path)) missing.push_back(path);
  for (auto it = missing.rbegin(); it != missing.rend(); ++it) {
    // Who makes it at the same time might end before its name lasts.
    if (::mkdir(it->c_str(), 0777) != 0 && errno != EEXIST) throw_system(operation, *it, errno);
    flush_folder(operation, folder_of(*it));
  }
  if (!fs::is_directory(folder, ignored)) throw_system(operation, folder, ENOTDIR);
}

OutputFile::OutputFile(const char* operation, const std::string& path, std::string shown)
    : OutputFile(operation, ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666),
                 std::move(shown)) {}

OutputFile::OutputFile(const char* operation, int descriptor, std::string shown)
    : operation_(operation), shown_(std::move(shown)), descriptor_(descriptor) {
  if (descriptor_ < 0) throw_system(operation_, shown_, errno);
}

OutputFile::~OutputFile() { ::close(descriptor_); }

void OutputFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  if (const int error = base::fault("write_file", shown_); error != 0) {
    throw_system(operation_, shown_, error);
  }
  while (bytes > 0) {
    const ssize_t done = ::write(descriptor_, next, std::min(bytes, kLargestCall));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw_system(operation_, shown_, errno);
    next += done;
    bytes -= static_cast<std::size_t>(done);
  }
}

void OutputFile::write_at(uint64_t at, const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  auto place = static_cast<off_t>(at);
  while (bytes > 0) {
    const ssize_t done = ::pwrite(descriptor_, next, std::min(bytes, kLargestCall), place);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw_system(operation_, shown_, errno);
    next += done;
    place += done;
    bytes -= static_cast<std::size_t>(done);
  }
}

void OutputFile::flush() {
  if (::fsync(descriptor_) != 0) throw_system(operation_, shown_, errno);
}

AtomicFile::AtomicFile(const char* operation, std::string path)
    : operation_(operation),
      path_(std::move(path)),
      file_(operation, create_locked(operation, path_, "", temporary_), path_) {}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::commit() {
  file_.flush();
  base::check_may_write();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw_system(operation_, path_, errno);
  committed_ = true;
  flush_folder(operation_, folder_of(path_));
}

InputFolder::InputFolder(const char* operation, std::string path)
    : operation_(operation), path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) throw_system(operation_, path_, errno);
}

InputFolder::~InputFolder() { ::close(descriptor_); }

InputFile::InputFile(const char* operation, std::string path)
    : operation_(operation), path_(std::move(path)) {
  open(AT_FDCWD, path_.c_str(), Within::kAnywhere);
}

InputFile::InputFile(const InputFolder& folder, const std::string& name)
    : operation_(folder.operation()), path_(folder.path() + "/" + name) {
  open(folder.descriptor(), name.c_str(), Within::kFolder);
}

void InputFile::open(int folder, const char* name, Within within) {
  const int links = within == Within::kFolder ? O_NOFOLLOW : 0;
  // Not even a pipe without a writer is waited for.
  descriptor_ = ::openat(folder, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | links);
  if (descriptor_ < 0 && errno == ELOOP && within == Within::kFolder) {
    throw DataLoss(str_cat("[", operation_, "] ", path_,
                           ": expected a file of the folder, got a link: where it leads to is not "
                           "part of the checkpoint"));
  }
  if (descriptor_ < 0) throw_unreadable(errno);
  struct stat status = {};
  const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(status.st_mode)) {
    size_ = static_cast<uint64_t>(status.st_size);
    modified_ = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
    return;
  }
  ::close(descriptor_);
  if (error != 0) throw_unreadable(error);
  const std::string text = str_cat("[", operation_, "] expected a regular file, got ",
                                   kind_of(status.st_mode), ": ", path_);
  if (within == Within::kFolder) throw DataLoss(text);
  throw InvalidArgument(text);
}

void InputFile::throw_unreadable(int error) const {
  if (!is_damage(error)) throw_system(operation_, path_, error);
  throw DataLoss(str_cat("[", operation_, "] ", path_, ": ", std::strerror(error)));
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(uint64_t offset, void* out, std::size_t bytes) const {
  char* next = static_cast<char*>(out);
  if (const int error = base::fault("read", path_); error != 0) throw_unreadable(error);
  while (bytes > 0) {
    const ssize_t got =
        ::pread(descriptor_, next, std::min(bytes, kLargestCall), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_unreadable(errno);
    if (got == 0) {
      throw DataLoss(str_cat("[", operation_, "] ", path_, ": expected ", bytes,
                             " more bytes at byte ", offset, ", got the end of the file"));
    }
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

std::string InputFile::read_all(uint64_t most) const {
  if (size_ > most) {
    throw DataLoss(str_cat("[", operation_, "] ", path_, ": expected at most ", most,
                           " bytes, got a file of ", size_));
  }
  std::string text(static_cast<std::size_t>(size_), '\0');
  read(0, text.data(), text.size());
  return text;
}

}  // namespace cohort::internal::checkpoint
