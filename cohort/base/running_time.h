// SPDX-License-Identifier: Apache-2.0
//
// The time in which this process ran: what it was stopped (Ctrl-Z, SIGSTOP, a machine that was
// suspended) is left out. Somebody has to look often, for a pause is what nobody has looked at:
//
//   RunningTime running(BootClock::now());
//   const auto stopped = running.look(BootClock::now());   // as often as kLookEvery says
//   const auto now = running.now();                        // as of that look
#pragma once

#include <chrono>

#include "cohort/base/boot_clock.h"

namespace cohort::internal::base {

/// Threads: thread-compatible.
class RunningTime {
 public:
  static constexpr std::chrono::milliseconds kLookEvery{250};
  /// A pause; less is a busy machine.
  static constexpr std::chrono::milliseconds kPause{500};

  explicit RunningTime(BootClock::time_point now) : seen_(now) {}

  /// How long the process had been stopped since the last look; 0 most of the time.
  std::chrono::milliseconds look(BootClock::time_point now) {
    const auto gap = now - seen_;
    seen_ = now;
    if (gap <= kPause) return {};
    const auto stopped = std::chrono::duration_cast<std::chrono::milliseconds>(gap - kLookEvery);
    stopped_ += stopped;
    return stopped;
  }
  std::chrono::steady_clock::time_point now() const {
    return std::chrono::steady_clock::time_point(seen_.time_since_epoch() - stopped_);
  }

 private:
  BootClock::time_point seen_;
  BootClock::duration stopped_{};
};

}  // namespace cohort::internal::base
