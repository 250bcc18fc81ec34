// SPDX-License-Identifier: Apache-2.0
//
// Functions that the program has given ids: one that is scheduled again under its id, also by a
// process that was started again, is the one of before.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/internal/closure_queue.h"
#include "cohort/coordinator/internal/journal.h"
#include "cohort/coordinator/internal/run_messages.h"

namespace cohort::internal::coordinator {

/// Threads: thread-safe.
class NamedClosures {
 public:
  /// Null: no function may have an id.
  explicit NamedClosures(std::shared_ptr<Journal> journal) : journal_(std::move(journal)) {}

  /// The result of one that has ended under this id, or is under way; null: it is to be run.
  /// Errors: FailedPrecondition for an id without a journal, and for one of another call; what the
  ///         one of before has ended with, if it may have counted.
  std::shared_ptr<RemoteResult> find(const Closure& closure);
  /// It is queued.
  void add(const Closure& closure);
  /// Before anybody hears of their results: those that may count several times. What cannot be
  /// written is an error.
  void write_down(const std::vector<ClosurePtr>& closures, RunAnswer& answer);
  /// Errors: FailedPrecondition without a journal, and unless the queue is idle; as Journal.
  void forget_finished(const ClosureQueue& queue);

 private:
  struct Named {
    JournalKey key = {};
    std::weak_ptr<RemoteResult> result = {};
  };
  const std::shared_ptr<Journal> journal_;
  base::Mutex mutex_;
  std::map<std::string, Named> named_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort::internal::coordinator
