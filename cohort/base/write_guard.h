// SPDX-License-Identifier: Apache-2.0
//
// A process that was stopped and goes on when another one has taken its place must not replace that
// one's files. Who knows of such a thing stands guard; who gives a file its name asks:
//
//   const WriteGuard guard([&] { check_lease(); });   // as long as this process is in a job
//   check_may_write();                                   // right before the rename
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cohort/base/process_mark.h"

namespace cohort::internal::base {

/// Threads: thread-safe. In a child of the process that made it, it guards nothing.
class WriteGuard {
 public:
  /// `check` throws if this process must not write any more. It may run on any thread, and wait.
  explicit WriteGuard(std::function<void()> check);
  /// Blocks: while a check runs.
  ~WriteGuard();
  WriteGuard(const WriteGuard&) = delete;
  WriteGuard& operator=(const WriteGuard&) = delete;

  struct Check;

 private:
  const std::shared_ptr<Check> check_;
};

/// From here on this process publishes nothing, whoever stood guard before and is gone: it was
/// given up, and another one may have its place. Threads: any.
void forbid_writes(const std::string& why);
/// It has a place again. Threads: any.
void allow_writes();

/// Errors: what a guard throws; FailedPrecondition after forbid_writes(). Blocks: as the checks.
/// Threads: any.
void check_may_write();

}  // namespace cohort::internal::base
