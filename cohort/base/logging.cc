// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/logging.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace cohort::internal::base {
namespace {

int minimum_level() {
  for (const char* name : {"COHORT_MIN_LOG_LEVEL", "TF_CPP_MIN_LOG_LEVEL"}) {
    if (const char* text = std::getenv(name); text != nullptr && *text != '\0') {
      return std::atoi(text);
    }
  }
  return 0;
}

// "cohort/data/x.cc", also where a program's own compiler gave an absolute path.
const char* short_path(const char* file) {
  const char* found = nullptr;
  for (const char* at = std::strstr(file, "cohort/"); at != nullptr;
       at = std::strstr(at + 1, "cohort/")) {
    found = at;
  }
  return found != nullptr ? found : file;
}

std::string time_stamp() {
  using std::chrono::system_clock;
  const auto now = system_clock::now();
  const std::time_t seconds = system_clock::to_time_t(now);
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() %
      1'000'000;
  std::tm local{};
  localtime_r(&seconds, &local);
  char date[32];
  std::strftime(date, sizeof date, "%F %T", &local);
  char text[48];
  std::snprintf(text, sizeof text, "%s.%06d", date, static_cast<int>(micros));
  return text;
}

}  // namespace

bool log_enabled(LogLevel level) {
  static const int minimum = minimum_level();
  return static_cast<int>(level) >= minimum;
}

void log_line(LogLevel level, const char* file, int line, const std::string& text) {
  const char letter = "IWEF"[static_cast<int>(level)];
  const std::string out =
      str_cat(time_stamp(), ": ", letter, ' ', short_path(file), ':', line, "] ", text, '\n');
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, out.data(), out.size());
}

}  // namespace cohort::internal::base
