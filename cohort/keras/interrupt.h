// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C while fit, evaluate or predict runs: the first ends it after the step, a second one acts
// as if it were not there. Internal.
#pragma once

namespace cohort::internal {

/// Watches SIGINT for its lifetime, unless the process ignores it. Several guards (fits in several
/// threads) share one handler; the last one puts back what was there before.
/// Threads: thread-safe.
class [[nodiscard]] InterruptGuard {
 public:
  /// A program's own handler is put aside for the time only if `replaces_handlers`.
  explicit InterruptGuard(bool replaces_handlers);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// True once SIGINT has come. Cost: one load.
  static bool requested();
};

/// Errors: keras::Interrupted that names the operation, if SIGINT has come.
void throw_if_interrupted(const char* operation);

}  // namespace cohort::internal
