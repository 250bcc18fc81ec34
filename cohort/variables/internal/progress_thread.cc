// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/progress_thread.h"

#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/logging.h"

namespace cohort::internal::variables {

ProgressThread::~ProgressThread() {
  pause();
  std::unique_ptr<runtime::TaskThread> thread;
  {
    const base::MutexLock lock(mutex_);
    thread = std::move(thread_);
  }
  // Its end asks it to stop, and waits for it.
}

void ProgressThread::resume() {
  const base::MutexLock lock(mutex_);
  if (is_refused_) return;
  error_ = nullptr;
  is_on_ = true;
  if (!thread_) make_thread();
  changed_.notify_all();
}

void ProgressThread::make_thread() {
  try {
    thread_ = std::make_unique<runtime::TaskThread>(
        "progress", [this](const std::stop_token& stop) { work(stop); });
  } catch (const Error& e) {
    COHORT_LOG(kWarning, "[optimizer.minimize] a link is idle while layers compute: ", e.what());
    is_refused_ = true;
  }
}

std::exception_ptr ProgressThread::pause() noexcept {
  if (!process_.is_ours()) return nullptr;
  const base::MutexLock lock(mutex_);
  is_on_ = false;
  changed_.wait(mutex_, [&]() COHORT_REQUIRES(mutex_) { return !is_in_call_; });
  return std::exchange(error_, nullptr);
}

void ProgressThread::work(const std::stop_token& stop) {
  const base::MutexLock lock(mutex_);
  while (!stop.stop_requested()) {
    changed_.wait(mutex_, stop, [&]() COHORT_REQUIRES(mutex_) { return is_on_; });
    changed_.wait_for(mutex_, stop, kTick, [&]() COHORT_REQUIRES(mutex_) { return !is_on_; });
    if (is_on_ && !stop.stop_requested()) call();
  }
}

void ProgressThread::call() {
  is_in_call_ = true;
  std::exception_ptr error;
  {
    const base::MutexUnlock during(mutex_);
    try {
      go_on_();
    } catch (...) {
      error = std::current_exception();
    }
  }
  is_in_call_ = false;
  if (error) {
    error_ = error;
    is_on_ = false;
  }
  changed_.notify_all();
}

}  // namespace cohort::internal::variables
