// SPDX-License-Identifier: Apache-2.0
//
// What a job with parameter servers is doing, as its chief says.
#pragma once

#include <string>

namespace cohort_tool {

struct StatusOptions {
  std::string address = {};  ///< Empty: the chief's of TF_CONFIG.
  int pid = 0;               ///< Of a process whose TF_CONFIG and COHORT_... are taken; 0: none.
  bool watch = false;        ///< Once a second, until the process is ended.
  bool json = false;         ///< StatusBoard::json() as it comes, a line each time.
};

/// Writes to standard output. The exit code: 1 where nobody answers, or does not to this one.
/// Errors: std::runtime_error where nobody says whom to ask.
int status(const StatusOptions& options);

}  // namespace cohort_tool
