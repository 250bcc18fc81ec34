// SPDX-License-Identifier: Apache-2.0
//
// What the environment says of a coordinator.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "cohort/base/check.h"

namespace cohort::internal::coordinator {

/// `otherwise`: without the variable. Errors: InvalidArgument for what is no number.
inline double number_variable(const char* name, double otherwise) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  COHORT_CHECK_ARG(*end == '\0', "[cluster_coordinator] expected ", name, " to be a number, got \"",
                   text, "\"");
  return value;
}

/// Until a worker gets its first functions. Errors: as number_variable.
inline std::chrono::milliseconds start_delay(int worker) {
  const double most = number_variable("TF_COORDINATOR_SCHEDULE_START_DELAY_MAX", 0);
  double seconds = worker * number_variable("TF_COORDINATOR_SCHEDULE_START_DELAY", 0);
  if (most != 0) seconds = std::min(seconds, most);
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

/// Pings without an answer and functions that could not reach the server, since it has answered
/// last: with so many a server without copies is lost. Errors: as number_variable. TF: counts
/// functions alone.
inline int failures_of_a_lost_server() {
  const double most = number_variable("TF_COORDINATOR_IGNORE_TRANSIENT_PS_FAILURES", 3);
  return most > 1 ? static_cast<int>(std::min(most, 1e9)) : 1;
}

}  // namespace cohort::internal::coordinator
