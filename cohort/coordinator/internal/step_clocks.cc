// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/step_clocks.h"

#include <algorithm>

namespace cohort::internal::coordinator {

std::optional<int64_t> StepClocks::slowest_but(int worker) const {
  std::optional<int64_t> out;
  for (const auto& [other, clock] : clocks_) {
    if (other == worker || !clock.is_counted()) continue;
    out = std::min(out.value_or(clock.ended), clock.ended);
  }
  return out;
}

void StepClocks::catch_up(int worker, Clock& clock) {
  clock.ended = std::max(clock.ended, slowest_but(worker).value_or(clock.ended));
}

void StepClocks::join(int worker) {
  if (!bound_ || clocks_.count(worker) > 0) return;
  // Where all others run something else they go on from where they were.
  std::optional<int64_t> first = slowest_but(worker);
  if (!first) {
    for (const auto& [other, clock] : clocks_) {
      first = std::min(first.value_or(clock.ended), clock.ended);
    }
  }
  clocks_[worker] = {.ended = first.value_or(0)};
}

void StepClocks::leave(int worker) { clocks_.erase(worker); }

bool StepClocks::may_begin(int worker) const {
  if (!bound_) return true;
  const auto found = clocks_.find(worker);
  if (found == clocks_.end()) return true;  // from the slowest's on
  const Clock& own = found->second;
  const int64_t slowest = std::min(own.ended, slowest_but(worker).value_or(own.ended));
  return own.ended + own.steps - slowest <= *bound_;
}

void StepClocks::begin(int worker, bool is_step) {
  if (!bound_) return;
  join(worker);
  Clock& clock = clocks_.at(worker);
  if (!is_step) {
    ++clock.others;
    return;
  }
  if (!clock.is_counted()) catch_up(worker, clock);
  ++clock.steps;
}

void StepClocks::end(int worker, bool is_step, bool has_run) {
  const auto found = clocks_.find(worker);
  if (found == clocks_.end()) return;
  Clock& clock = found->second;
  if (is_step) {
    --clock.steps;
    if (has_run) ++clock.ended;
    return;
  }
  const bool was_counted = clock.is_counted();
  --clock.others;
  if (!was_counted && clock.is_counted()) catch_up(worker, clock);
}

void StepClocks::align() {
  for (auto& [worker, clock] : clocks_) clock = {};
}

}  // namespace cohort::internal::coordinator
