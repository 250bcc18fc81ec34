// SPDX-License-Identifier: Apache-2.0
//
// How many steps a sample has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace cohort::bench {

/// Does the work `steps` times and returns the time of one. Units: us.
using TimedWork = std::function<double(std::int64_t steps)>;

/// As many steps as take about `seconds`; the work is warm afterwards. Of three tries the shortest
/// counts: what else the machine does makes steps slower, never faster, and a slow first one would
/// make every sample a single step, which waits for threads to wake where a loop does not.
inline std::int64_t steps_for(const TimedWork& time, double seconds) {
  constexpr int kWarmUp = 2;  // what these set up (compilers run, buffers fill) is no part of steps
  constexpr int kTries = 3;
  for (int i = 0; i < kWarmUp; ++i) time(1);
  for (std::int64_t steps = 1;;) {
    double us = time(steps);
    for (int i = 1; i < kTries; ++i) us = std::min(us, time(steps));
    const double wanted = seconds * 1e6 / us;
    if (wanted < 2.0 * static_cast<double>(steps)) {
      return std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted));
    }
    steps = static_cast<std::int64_t>(std::min(wanted, static_cast<double>(steps) * 10));
  }
}

}  // namespace cohort::bench
