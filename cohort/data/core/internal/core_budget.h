// SPDX-License-Identifier: Apache-2.0
//
// What the tuned steps of one iterator share.
#pragma once

#include <algorithm>

#include "cohort/base/mutex.h"
#include "cohort/data/core/options.h"

namespace cohort::internal::data {

/// Cores and threads. Threads: thread-safe.
class CoreBudget {
 public:
  /// `threads`: the most background threads of all tuned steps; kAutotune: cores decide.
  CoreBudget(int cores, int threads) : cores_(cores), threads_(threads) {}

  struct Use {
    double cores = 0;
    int threads = 0;  ///< In the background.
  };
  /// Cores that others leave to a step that uses `own`.
  double cores_for(const Use& own) const {
    const base::MutexLock lock(mutex_);
    return cores_ - (used_.cores - own.cores);
  }
  /// Calls at once for a step that uses `own`, at most `most`.
  int calls_for(const Use& own, int most) const {
    const base::MutexLock lock(mutex_);
    if (threads_ == cohort::data::kAutotune) return most;
    // One thread that hands elements over is worse than none.
    const int left = threads_ - (used_.threads - own.threads);
    return left < 2 ? 1 : std::min(most, left);
  }
  void change(Use& own, const Use& now) {
    const base::MutexLock lock(mutex_);
    used_.cores += now.cores - own.cores;
    used_.threads += now.threads - own.threads;
    own = now;
  }

 private:
  const int cores_;
  const int threads_;
  mutable base::Mutex mutex_;
  Use used_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort::internal::data
