// SPDX-License-Identifier: Apache-2.0
//
// What tests do more of in make test-faults, where nothing else runs.
#pragma once

#include <chrono>
#include <cstdlib>
#include <string>

namespace cohort::testing {

/// make test-faults: more of the same, and nothing may be left out.
inline bool all_faults() {
  const char* const text = std::getenv("COHORT_FAULTS");
  return text != nullptr && std::string(text) == "all";
}

/// How long to wait for what is promised within `promised`. A busy machine may need longer, which
/// says nothing of the promise: only make test-faults holds to it.
inline std::chrono::milliseconds as_promised(std::chrono::milliseconds promised) {
  return all_faults() ? promised : std::chrono::minutes(1);
}

}  // namespace cohort::testing
