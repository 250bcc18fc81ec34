// SPDX-License-Identifier: Apache-2.0
//
// Threads that do what they are given, the first first: what must not be done on gRPC's threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/runtime/thread_name.h"

namespace cohort::internal::coordinator {

/// Threads: thread-safe. An exception that leaves a task ends the process.
class TaskThreads {
 public:
  explicit TaskThreads(int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
  }
  /// Does what is left.
  ~TaskThreads() {
    {
      const base::MutexLock lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& each : threads_) each.join();
  }
  TaskThreads(const TaskThreads&) = delete;
  TaskThreads& operator=(const TaskThreads&) = delete;

  void add(std::function<void()> task) {
    {
      const base::MutexLock lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void work() {
    runtime::set_thread_name("cohort-ps");
    for (;;) {
      std::function<void()> task;
      {
        const base::MutexLock lock(mutex_);
        changed_.wait(mutex_,
                      [this]() COHORT_REQUIRES(mutex_) { return ends_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  base::Mutex mutex_;
  std::condition_variable_any changed_;
  bool ends_ COHORT_GUARDED_BY(mutex_) = false;
  std::deque<std::function<void()>> tasks_ COHORT_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace cohort::internal::coordinator
