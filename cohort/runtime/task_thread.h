// SPDX-License-Identifier: Apache-2.0
//
// One background thread with a task: prefetching, parallel map functions, loading files.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <thread>

#include "cohort/base/process_mark.h"

namespace cohort::internal::runtime {

/// A named thread that runs `task` once. It inherits nothing of its maker (no replica, no grad
/// mode) and uses one intra-op thread, so that it does not compete with the replicas.
/// Errors: Error kResourceExhausted if the system refuses the thread. An exception that leaves
///         `task` ends the process; the task hands errors over itself.
/// Blocks: the destructor asks the task to stop and joins it;
///         in a child of the process that started it there is
///         nothing to join.
class TaskThread {
 public:
  TaskThread(std::string name, std::function<void(std::stop_token)> task);
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  /// Asks the task to stop without waiting for it.
  void request_stop();
  /// Waits for the end of the task. Errors: FailedPrecondition in a child of its process.
  void join();

 private:
  const base::ProcessMark process_;
  std::jthread thread_;
};

}  // namespace cohort::internal::runtime
