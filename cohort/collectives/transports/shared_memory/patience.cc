// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/patience.h"

#include <sched.h>

#include <algorithm>

#include "cohort/runtime/relax.h"

namespace cohort::internal::collectives {
namespace {

// Other ranks that wait give a core back within a few microseconds. Who keeps it for longer
// computes: it gets a whole slice each time it is asked, and who sleeps instead is woken into it.
constexpr std::chrono::microseconds kLongYield{300};
constexpr int kShortestRest = 32;
constexpr int kLongestRest = 8192;

}  // namespace

Patience::Means Patience::Means::of_system() {
  return {.now = [] { return Clock::now(); },
          .relax = [] { runtime::relax(); },
          .yield = [] { sched_yield(); }};
}

bool Patience::look_for(base::FunctionRef<bool()> is_over, base::FunctionRef<void()> meanwhile) {
  if (is_over()) return true;
  const int looks = looks_.next();
  return looks > 0 ? spin(looks, is_over, meanwhile) : yield(is_over, meanwhile);
}

// A look takes 10 ns on one processor and 60 on another, so the shortest is counted in time; the
// clock is not read before the looks that have paid are over.
bool Patience::spin(int looks, base::FunctionRef<bool()> is_over,
                    base::FunctionRef<void()> meanwhile) {
  Clock::time_point until = Clock::time_point::min();
  for (int i = 0;; ++i) {
    if (i == looks) until = means_.now() + kLooksFor;
    if (i > looks && means_.now() >= until) break;
    means_.relax();
    if (is_over()) {
      looks_.met(i);
      return true;
    }
    meanwhile();
  }
  looks_.parked();
  return false;
}

bool Patience::yield(base::FunctionRef<bool()> is_over, base::FunctionRef<void()> meanwhile) {
  if (rest_ > 0) {
    --rest_;
    return false;
  }
  const int yields = yields_.next();
  Clock::time_point began;
  for (int i = 0; i < yields; ++i) {
    const Clock::time_point before = means_.now();
    if (i == 0) began = before;
    if (before - began >= kYieldsFor) break;
    means_.yield();
    const bool was_long = means_.now() - before > kLongYield;
    if (was_long) {
      next_rest_ = std::clamp(2 * next_rest_, kShortestRest, kLongestRest);
      rest_ = next_rest_;
      return is_over();
    }
    if (is_over()) {
      yields_.met(i);
      next_rest_ = 0;
      return true;
    }
    meanwhile();
  }
  yields_.parked();
  return false;
}

}  // namespace cohort::internal::collectives
