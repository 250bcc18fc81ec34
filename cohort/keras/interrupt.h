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
  enum class Of { kFit, kOther };
  /// A program's own handler is put aside for the time of a fit only.
  explicit InterruptGuard(Of of);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// True once SIGINT has come. Cost: one load.
  static bool requested();

 private:
  const Of of_;
};

/// For what is no fit. Errors: keras::Interrupted that names the operation, if SIGINT has come and
/// no fit is going on, which it is for then.
void throw_if_interrupted(const char* operation);

}  // namespace cohort::internal
