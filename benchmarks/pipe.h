// SPDX-License-Identifier: Apache-2.0
//
// The far end of the pipe to a contender (process.h is the near one), for contenders in C++.
#pragma once

#include <functional>
#include <string>

namespace cohort::bench {

/// Says "ready <versions>" on standard output, then answers each line of standard input with "ok"
/// and what `answer` returns, or with "error" and the text of what it throws, until "quit" or the
/// end of the pipe. What libraries print goes to standard error. Returns the process's exit status.
int serve_lines(const std::string& versions,
                const std::function<std::string(const std::string& line)>& answer);

}  // namespace cohort::bench
