// SPDX-License-Identifier: Apache-2.0
//
// For tests: a job of two ranks of which rank 0 is late. Whatever it waits for has come long ago
// when it looks: rank 1 has begun its next operation by then, or has failed.
#pragma once

#include <condition_variable>

#include "cohort/base/mutex.h"
#include "cohort/collectives/transports/threads/thread_job.h"

namespace cohort::testing {

class LateRank {
 public:
  /// Before the job is played. The job outlives it, but calls nothing of it any more.
  explicit LateRank(internal::collectives::ThreadJob& job) : job_(job) {
    job.before_each(0, [this](const auto&...) {
      const internal::base::MutexLock lock(mutex_);
      ++begun_by_late_;
    });
    job.before_each(1, [this](const auto&...) {
      const internal::base::MutexLock lock(mutex_);
      ++begun_by_other_;
      changed_.notify_all();
    });
    job.before_wait(0, [this](const auto&...) {
      const internal::base::MutexLock lock(mutex_);
      changed_.wait(mutex_, [&]() COHORT_REQUIRES(mutex_) {
        return is_over_ || begun_by_other_ > begun_by_late_;
      });
    });
  }
  ~LateRank() {
    for (const int rank : {0, 1}) job_.before_each(rank, {});
    job_.before_wait(0, {});
  }
  LateRank(const LateRank&) = delete;
  LateRank& operator=(const LateRank&) = delete;

  /// By rank 1: it begins no operation any more.
  void other_has_ended() {
    const internal::base::MutexLock lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }

 private:
  internal::collectives::ThreadJob& job_;
  internal::base::Mutex mutex_;
  std::condition_variable_any changed_;
  int begun_by_late_ COHORT_GUARDED_BY(mutex_) = 0;
  int begun_by_other_ COHORT_GUARDED_BY(mutex_) = 0;
  bool is_over_ COHORT_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::testing
