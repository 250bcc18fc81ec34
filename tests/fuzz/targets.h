// SPDX-License-Identifier: Apache-2.0
//
// What is fuzzed: functions that read bytes from outside. Each may throw Cohort's errors, but
// Internal, and nothing else.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::fuzz {

struct Target {
  const char* name;
  void (*run)(std::string_view bytes);
  /// Inputs to start from, made by Cohort's own writers.
  std::vector<std::string> (*seeds)();
};

std::span<const Target> record_targets();
std::span<const Target> array_targets();
std::span<const Target> image_targets();
std::span<const Target> state_targets();
std::span<const Target> checkpoint_targets();
std::span<const Target> coordinator_targets();

}  // namespace cohort::fuzz
