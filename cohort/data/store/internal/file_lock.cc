// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/store/internal/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "cohort/base/errno_code.h"
#include "cohort/base/strings.h"

namespace cohort::internal::data {
namespace {

std::string who_we_are() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return str_cat("process ", ::getpid(), " on ", host.data());
}

std::string text_in(int file) {
  std::array<char, 512> text{};
  const ssize_t bytes = ::pread(file, text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(0, bytes))};
}

/// Whether the path still names the file: its last holder may have removed it.
bool is_at(int file, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

/// Whether the file is one of ours: neither a pipe, nor another name of somebody's file.
bool is_lock_file(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink <= 1;
}

}  // namespace

FileLock::FileLock(const std::string& where, std::string path) : path_(std::move(path)) {
  while (true) {
    // A link that somebody has laid there is not followed, and a pipe is not waited for.
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (file_ < 0) {
      const int error = errno;
      throw Error(base::code_of_errno(error),
                  str_cat(where, " cannot create ", path_, ": ", std::strerror(error)));
    }
    if (!is_lock_file(file_)) {
      ::close(file_);
      throw Error(ErrorCode::kAlreadyExists,
                  str_cat(where, " expected a lock file of its own, or none, got ", path_,
                          ", which is a pipe, a device or another name of a file; remove it"));
    }
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      const std::string holder = text_in(file_);
      ::close(file_);
      if (error != EWOULDBLOCK) {
        throw Error(base::code_of_errno(error),
                    str_cat(where, " cannot lock ", path_, ": ", std::strerror(error)));
      }
      throw Error(ErrorCode::kAlreadyExists,
                  str_cat(where, " expected no other pass that writes the file, got ", holder,
                          ", which holds ", path_, "; wait for its end, or name another file"));
    }
    if (is_at(file_, path_)) break;
    ::close(file_);
  }
  const std::string us = who_we_are();
  // Only a text for others to read: the lock does not need it.
  if (::ftruncate(file_, 0) == 0) static_cast<void>(!::pwrite(file_, us.data(), us.size(), 0));
}

FileLock::~FileLock() {
  ::unlink(path_.c_str());
  ::close(file_);
}

}  // namespace cohort::internal::data
