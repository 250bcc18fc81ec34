// SPDX-License-Identifier: Apache-2.0
//
// One background thread with a task: prefetching, parallel map functions, loading files.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <thread>

namespace cohort::internal {

/// A named thread that runs `task` once. It inherits nothing of its maker (no replica, no grad
/// mode) and uses one intra-op thread, so that it does not compete with the replicas.
/// Errors: an exception that leaves `task` ends the process; the task hands errors over itself.
/// Blocks: the destructor asks the task to stop and joins it.
class TaskThread {
 public:
  TaskThread(std::string name, std::function<void(std::stop_token)> task);
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  /// Asks the task to stop without waiting for it.
  void request_stop();
  /// Waits for the end of the task.
  void join();

 private:
  std::jthread thread_;
};

}  // namespace cohort::internal
