// SPDX-License-Identifier: Apache-2.0
//
// What standard output is, and what it can show; internal.
#pragma once

#include <cstdint>

namespace cohort::keras::internal {

struct Terminal {
  bool cursor = true;   ///< A line can be written over: a terminal, and TERM is not "dumb".
  bool colours = true;  ///< The same, and NO_COLOR is unset or empty (https://no-color.org).
  int64_t columns = 0;  ///< COLUMNS, else the terminal's; 0 where there is none.
};

/// Asked anew each time: windows change their size. Cost: a system call.
Terminal terminal();

}  // namespace cohort::keras::internal
