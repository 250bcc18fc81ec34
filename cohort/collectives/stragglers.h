// SPDX-License-Identifier: Apache-2.0
//
// Which worker the others wait for. A step of all is as long as the slowest one's, so who is slow
// shows not in how long steps take, which is the same everywhere, but in who waits least.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/collectives/flight_recorder.h"

namespace cohort::internal::collectives {

/// Threads: thread-compatible.
class Stragglers {
 public:
  /// Slow is who takes `ratio` times as long as the median of the others, in two windows one after
  /// the other. 0: nobody is.
  explicit Stragglers(double ratio) : ratio_(ratio) {}

  /// By rank, as last heard. Returns a line for each who has become slow since, naming it by
  /// `names`.
  std::vector<std::string> look_at(const std::vector<Pace>& paces,
                                   const std::vector<std::string>& names);

 private:
  struct Seen {
    uint64_t window = 0;
    int slow_windows = 0;  // one after the other
  };
  const double ratio_;
  std::vector<Seen> seen_;  // by rank
};

}  // namespace cohort::internal::collectives
