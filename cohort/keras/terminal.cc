// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace cohort::keras::internal {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int64_t columns(bool is_terminal) {
  const std::string_view text = environment("COLUMNS");
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number > 0) return number;
  struct winsize size = {};
  if (is_terminal && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) return size.ws_col;
  return 0;
}

}  // namespace

Terminal terminal() {
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  const bool cursor = is_terminal && environment("TERM") != "dumb";
  return {.cursor = cursor,
          .colours = cursor && environment("NO_COLOR").empty(),
          .columns = columns(is_terminal)};
}

}  // namespace cohort::keras::internal
