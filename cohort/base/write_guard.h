// SPDX-License-Identifier: Apache-2.0
//
// A process that was stopped and goes on when another one has taken its place must not replace that
// one's files. Who knows of such a thing stands guard; who gives a file its name asks:
//
//   const WriteGuard guard([this] { check_lease(); });   // as long as this process is in a job
//   check_may_write();                                   // right before the rename
#pragma once

#include <functional>
#include <list>

namespace cohort::internal {

/// Threads: thread-safe.
class WriteGuard {
 public:
  /// `check` throws if this process must not write any more. It may run on any thread.
  explicit WriteGuard(std::function<void()> check);
  /// Blocks: while a check runs.
  ~WriteGuard();
  WriteGuard(const WriteGuard&) = delete;
  WriteGuard& operator=(const WriteGuard&) = delete;

 private:
  std::list<std::function<void()>>::iterator place_;
};

/// Errors: what a guard throws. Threads: any.
void check_may_write();

}  // namespace cohort::internal
