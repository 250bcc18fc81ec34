// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C while fit, evaluate or predict runs: the first ends it after the step, a second one ends
// the process. Internal.
#pragma once

#include <cstdint>

namespace cohort::keras::internal {

/// Watches SIGINT for its lifetime, unless the process ignores it. All guards share one handler.
/// A Ctrl-C is for all fits that are going on then; if there is none, for every evaluate and
/// predict that is. Threads: thread-safe.
class [[nodiscard]] InterruptGuard {
 public:
  enum class Of { kFit, kOther };
  /// A program's own handler is put aside for the time of a fit only.
  explicit InterruptGuard(Of of);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// True once a Ctrl-C has come for this one. Cost: one load.
  bool requested() const;
  /// Errors: keras::Interrupted that names the operation, if one has.
  void check(const char* operation) const;

 private:
  const Of of_;
  const uint32_t before_;  // how many had come for its kind
};

}  // namespace cohort::keras::internal
