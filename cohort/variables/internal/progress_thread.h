// SPDX-License-Identifier: Apache-2.0
//
// Moves messages while the threads that have started them compute.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <stop_token>

#include "cohort/base/mutex.h"
#include "cohort/base/process_mark.h"
#include "cohort/runtime/task_thread.h"

namespace cohort::internal::variables {

/// Calls `go_on` on a thread of its own, again and again between resume() and pause(), with a tick
/// of rest before each call: a system's buffers hold what a link carries meanwhile, and a core that
/// computes is not asked for more often. Kept by base::kept_to_this_process(). Threads:
/// thread-safe.
class ProgressThread {
 public:
  static constexpr std::chrono::milliseconds kTick{1};

  explicit ProgressThread(std::function<void()> go_on) : go_on_(std::move(go_on)) {}
  /// As pause().
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// The first time makes the thread; where the system refuses one, nothing is called, which a
  /// warning says.
  void resume();
  /// Nothing is called any more once it has returned. What a call has thrown since resume(), which
  /// was the last one then; null: nothing. Blocks: while a call goes on. In a
  /// child of its process, where the thread is missing: never.
  std::exception_ptr pause() noexcept;

 private:
  void work(const std::stop_token& stop);
  void make_thread() COHORT_REQUIRES(mutex_);
  void call() COHORT_REQUIRES(mutex_);

  const base::ProcessMark process_;
  const std::function<void()> go_on_;
  base::Mutex mutex_;
  std::condition_variable_any changed_;
  bool is_on_ COHORT_GUARDED_BY(mutex_) = false;
  bool is_in_call_ COHORT_GUARDED_BY(mutex_) = false;
  bool is_refused_ COHORT_GUARDED_BY(mutex_) = false;  // a thread, by the system
  std::exception_ptr error_ COHORT_GUARDED_BY(mutex_) = {};
  std::unique_ptr<runtime::TaskThread> thread_ COHORT_GUARDED_BY(mutex_) = {};
};

}  // namespace cohort::internal::variables
