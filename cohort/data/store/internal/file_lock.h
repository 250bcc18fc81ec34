// SPDX-License-Identifier: Apache-2.0
//
// A file that says who is writing another one.
#pragma once

#include <string>

namespace cohort::internal::data {

/// Held until the destructor, which removes the file. The system lets go of the lock of a process
/// that is gone, so that nothing it left behind keeps others away.
class FileLock {
 public:
  /// Errors: Error kAlreadyExists that begins with `where` and names who holds the lock.
  FileLock(const std::string& where, std::string path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  const std::string path_;
  int file_ = -1;
};

}  // namespace cohort::internal::data
