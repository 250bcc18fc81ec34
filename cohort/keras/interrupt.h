// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C while fit runs: the first ends it after the step, a second one acts as if fit were not
// there. Internal.
#pragma once

namespace cohort::internal {

/// Watches SIGINT for its lifetime, unless the process ignores it. Several guards (fits in several
/// threads) share one handler; the last one puts back what was there before.
/// Threads: thread-safe.
class [[nodiscard]] InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// True once SIGINT has come. Cost: one load.
  static bool requested();
};

}  // namespace cohort::internal
