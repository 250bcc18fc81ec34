// SPDX-License-Identifier: Apache-2.0
//
// What a process writes, line by line, each with the name of who wrote it.
#pragma once

#include <string>

namespace cohortrun {

class PrefixedOutput {
 public:
  /// Owns `from`, the reading end of a pipe; writes to `to`.
  PrefixedOutput(int from, int to, std::string prefix);
  ~PrefixedOutput();
  PrefixedOutput(PrefixedOutput&& other) noexcept;
  PrefixedOutput& operator=(PrefixedOutput&&) = delete;

  int fd() const { return from_; }  ///< -1 after its end.
  /// Passes on what is there. Blocks: while nobody reads what is written.
  void pass_on();
  /// Passes on a last line without its end, and closes the pipe.
  void finish();

 private:
  void write_lines();

  int from_;
  int to_;
  std::string prefix_;
  std::string unwritten_;  // the beginning of a line
};

}  // namespace cohortrun
