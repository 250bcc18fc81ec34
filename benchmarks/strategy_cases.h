// SPDX-License-Identifier: Apache-2.0
//
// What strategy_bench measures: pieces of a strategy's work, each beside its limit or another way
// to do the same.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace cohort::bench {

/// Does the work `steps` times and returns the time of one. Units: us.
using TimedWork = std::function<double(std::int64_t steps)>;

/// One way to do a case's work. The first one of a case is the subject; "limit" is what the machine
/// allows.
struct Way {
  std::string name;
  TimedWork time;
};

struct StrategyCase {
  std::string name;
  int replicas = 1;
  std::int64_t bytes = 0;  ///< Of one replica's value; 0 where there is none.
  std::function<std::vector<Way>()>
      make;  ///< Sets up what the ways need, for as long as they live.
};

/// All cases that this machine's cores allow a limit for, in order.
std::vector<StrategyCase> strategy_cases(const std::vector<int>& cores);

}  // namespace cohort::bench
