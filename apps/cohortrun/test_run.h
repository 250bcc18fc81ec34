// SPDX-License-Identifier: Apache-2.0
//
// For tests: runs the program itself, with shells as workers.
#pragma once

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/testing/deadline.h"

namespace cohortrun::testing {

struct Ran {
  int code = -1;
  std::vector<std::string> lines = {};  // of both outputs, sorted
  std::string text = {};
  bool has(const std::string& line) const {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  }
  bool says(const std::string& words) const { return text.find(words) != std::string::npos; }
};

/// A command of the shell.
inline Ran run_shell(const std::string& command) {
  return cohort::testing::run_with_deadline(std::chrono::seconds(60), [&] {
    Ran ran;
    std::FILE* pipe = ::popen(cohort::str_cat("(", command, ") 2>&1").c_str(), "r");
    std::array<char, 4096> bytes;
    while (const std::size_t got = std::fread(bytes.data(), 1, bytes.size(), pipe)) {
      ran.text.append(bytes.data(), got);
    }
    const int status = ::pclose(pipe);
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    std::istringstream lines(ran.text);
    for (std::string line; std::getline(lines, line);) ran.lines.push_back(line);
    std::sort(ran.lines.begin(), ran.lines.end());
    return ran;
  });
}

inline Ran run(const std::string& arguments) {
  return run_shell(cohort::str_cat("exec ", COHORTRUN, " ", arguments));
}

/// A folder that is gone at the end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "cohortrun_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& text, bool is_program = false) {
    const std::string path = path_ + "/" + name;
    std::ofstream(path) << text;
    if (is_program) {
      std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    }
    return path;
  }
  std::string read(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(path_ + "/" + name).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

}  // namespace cohortrun::testing
