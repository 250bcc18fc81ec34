// SPDX-License-Identifier: Apache-2.0
//
// Of a job's chiefs, which follow each other, only the newest changes anything: each has a number
// above those before it, its generation, which all its calls and those of its workers' functions
// carry (RpcClaims), and by which a server refuses what comes from one that was followed.
//
//   GenerationFence fence;
//   const GenerationFence::Call call(fence, 6);   // of chief 6, while it is done
//   fence.raise(7, [] { ... });                   // chief 7 has come; told when that is over
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/mutex.h"
#include "cohort/base/strings.h"

namespace cohort::internal::coordinator {

/// What a chief is told that another one has followed.
inline FailedPrecondition superseded_error(uint64_t generation, uint64_t newest) {
  return FailedPrecondition(
      str_cat("[chief] expected the newest chief of this job, got chief ", generation,
              ", and another chief has begun as number ", newest,
              ": nothing more of what this one and its functions send is done. End this program; "
              "the other one has the job"));
}

/// Threads: thread-safe.
class GenerationFence {
 public:
  /// A call that is being done. Errors: FailedPrecondition where another chief has followed.
  class [[nodiscard]] Call {
   public:
    Call(GenerationFence& fence, uint64_t generation) : fence_(fence), generation_(generation) {
      fence_.enter(generation_);
    }
    ~Call() { fence_.leave(generation_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    GenerationFence& fence_;
    const uint64_t generation_;
  };

  /// Calls of generations before it are refused from here on. `then`: when none of them is being
  /// done any more, perhaps at once; it does not come back to this object. Order: as they are said.
  /// Errors: FailedPrecondition where another chief has followed; `then` is not called.
  void raise(uint64_t generation, std::function<void()> then) {
    const base::MutexLock lock(mutex_);
    if (generation < newest_) throw superseded_error(generation, newest_);
    newest_ = generation;
    waiting_.emplace_back(generation, std::move(then));
    tell_waiting();
  }

 private:
  void enter(uint64_t generation) {
    const base::MutexLock lock(mutex_);
    if (generation < newest_) throw superseded_error(generation, newest_);
    ++running_[generation];
  }
  void leave(uint64_t generation) {
    const base::MutexLock lock(mutex_);
    const auto found = running_.find(generation);
    if (--found->second > 0) return;
    running_.erase(found);
    tell_waiting();
  }
  void tell_waiting() COHORT_REQUIRES(mutex_) {
    std::size_t told = 0;
    while (told < waiting_.size() &&
           (running_.empty() || running_.begin()->first >= waiting_[told].first)) {
      waiting_[told++].second();
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(told));
  }

  base::Mutex mutex_;
  uint64_t newest_ COHORT_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, int> running_ COHORT_GUARDED_BY(mutex_);  // calls, by generation
  std::vector<std::pair<uint64_t, std::function<void()>>> waiting_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort::internal::coordinator
