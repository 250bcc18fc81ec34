// SPDX-License-Identifier: Apache-2.0
//
// Log lines on standard error in TensorFlow's format:
//
//   2026-11-21 09:30:01.123456: W cohort/data/dataset.cc:42] ran out of data
//
// COHORT_MIN_LOG_LEVEL (else TF_CPP_MIN_LOG_LEVEL): 0 all, 1 no INFO, 2 no WARNING, 3 only FATAL.
#pragma once

#include <string>

#include "cohort/base/strings.h"

namespace cohort {

enum class LogLevel { kInfo = 0, kWarning = 1, kError = 2, kFatal = 3 };

namespace internal::base {
/// True if a line of this level is written.
bool log_enabled(LogLevel level);
/// Writes one line with one write(2). Threads: thread-safe.
void log_line(LogLevel level, const char* file, int line, const std::string& text);
}  // namespace internal::base

}  // namespace cohort

/// COHORT_LOG(kWarning, "ran out of data after ", n, " steps");
#define COHORT_LOG(level, ...)                                                          \
  do {                                                                                  \
    if (::cohort::internal::base::log_enabled(::cohort::LogLevel::level))               \
      ::cohort::internal::base::log_line(::cohort::LogLevel::level, __FILE__, __LINE__, \
                                         ::cohort::str_cat(__VA_ARGS__));               \
  } while (false)
