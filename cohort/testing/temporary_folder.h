// SPDX-License-Identifier: Apache-2.0
//
// A folder for what a test writes:
//
//   const TemporaryFolder folder;
//   model.save(folder / "m.keras");
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace cohort::testing {

/// Empty, of a name that nothing else has, so that a program may run twice at once; removed at the
/// end with all that is in it, by the process that made it (a child that it forks leaves it).
/// Errors: std::system_error where none can be made.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "cohort_XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), "mkdtemp " + path_);
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (::getpid() == owner_) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Of a file in it.
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
  const pid_t owner_ = ::getpid();
};

}  // namespace cohort::testing
