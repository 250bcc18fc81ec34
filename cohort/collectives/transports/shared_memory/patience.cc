// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/patience.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "cohort/runtime/relax.h"

namespace cohort::internal::collectives {
namespace {

// To sleep and to be woken takes some 5 us, on both sides: what looks for as long never loses more
// than twice what it could have. With less, one wait that was in vain (a rank lost its core for a
// moment) could make all ranks sleep ever after: who is to be woken is too late for who looks.
constexpr int kFewestLooks = 200;

// Other ranks that wait give a core back within a few microseconds. Who keeps it for longer
// computes: it gets a whole slice each time it is asked, and who sleeps instead is woken into it.
constexpr std::chrono::microseconds kLongYield{300};
constexpr int kShortestRest = 32;
constexpr int kLongestRest = 8192;

}  // namespace

bool Patience::look_for(base::FunctionRef<bool()> is_over, base::FunctionRef<void()> meanwhile) {
  if (is_over()) return true;
  const int looks = looks_.next();
  return looks > 0 ? spin(std::max(looks, kFewestLooks), is_over, meanwhile)
                   : yield(is_over, meanwhile);
}

bool Patience::spin(int looks, base::FunctionRef<bool()> is_over,
                    base::FunctionRef<void()> meanwhile) {
  for (int i = 0; i < looks; ++i) {
    runtime::relax();
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
  auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < yields; ++i) {
    sched_yield();
    const auto now = std::chrono::steady_clock::now();
    if (now - before > kLongYield) {
      next_rest_ = std::clamp(2 * next_rest_, kShortestRest, kLongestRest);
      rest_ = next_rest_;
      return is_over();
    }
    before = now;
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
