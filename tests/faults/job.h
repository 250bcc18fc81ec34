// SPDX-License-Identifier: Apache-2.0
//
// What tests of faults ask of a job: what each worker held after which step.
#pragma once

#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cohort/testing/process.h"
#include "tests/all_faults.h"

namespace cohort::proof {

using testing::all_faults;

using Job = std::vector<std::unique_ptr<testing::Process>>;

/// What a run without faults, in one process, holds after each step.
using Steps = std::map<std::string, std::string>;

/// The rest of the last line that begins with `prefix`; empty if none does.
inline std::string last_line(const std::string& text, const std::string& prefix) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(prefix, 0) == 0) out = line.substr(prefix.size());
  }
  return out;
}

/// "N weights HASH" of each step.
inline Steps steps_of(const std::string& text) {
  Steps out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string step, number, weights, value;
    words >> step >> number >> weights >> value;
    if (step == "step" && weights == "weights") out[number] = value;
  }
  return out;
}

inline Steps oracle(const std::string& program, int workers, std::vector<std::string> flags) {
  flags.insert(flags.begin(), {program, "--mirrored", std::to_string(workers)});
  testing::Process one(flags);
  EXPECT_EQ(one.wait(), 0) << one.text();
  return steps_of(one.text());
}

}  // namespace cohort::proof
