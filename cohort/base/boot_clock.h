// SPDX-License-Identifier: Apache-2.0
//
// Time as the world outside counts it: unlike std::chrono::steady_clock's, which stands still while
// the machine is suspended, it goes on. What somebody else has promised ends by this clock.
#pragma once

#include <time.h>

#include <chrono>

namespace cohort::internal::base {

struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept {
    timespec time = {};
    ::clock_gettime(CLOCK_BOOTTIME, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

}  // namespace cohort::internal::base
