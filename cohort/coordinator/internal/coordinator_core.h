// SPDX-License-Identifier: Apache-2.0
//
// A coordinator at work: the queue, and a thread for each worker, which sends it functions, takes
// what comes back, and waits for a worker that is lost to be there again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/internal/closure_queue.h"
#include "cohort/coordinator/internal/resource_handle.h"
#include "cohort/coordinator/internal/run_messages.h"

namespace cohort::internal::coordinator {

class ClusterConnection;
class Journal;
class ParameterServers;

/// Of ParameterServerOptions.
struct CoordinatorSettings {
  std::optional<int> staleness_bound = {};
  SyncPushes sync_pushes = {};
};

/// The resources that nobody holds any more. Threads: thread-safe.
class DroppedResources {
 public:
  void add(uint64_t id) {
    const base::MutexLock lock(mutex_);
    ids_.push_back(id);
  }
  /// All, once.
  std::vector<uint64_t> take();

 private:
  base::Mutex mutex_;
  std::vector<uint64_t> ids_ COHORT_GUARDED_BY(mutex_);
};

/// Threads: thread-safe.
class CoordinatorCore {
 public:
  /// `servers`: those of closures that count once; null: there are none.
  /// `journal`: what finds functions of a process before this one; null: nothing does.
  explicit CoordinatorCore(std::shared_ptr<ClusterConnection> connection,
                           std::shared_ptr<ParameterServers> servers = {},
                           std::shared_ptr<Journal> journal = {},
                           CoordinatorSettings settings = {});
  /// What waits or runs is cancelled.
  ~CoordinatorCore();
  CoordinatorCore(const CoordinatorCore&) = delete;
  CoordinatorCore& operator=(const CoordinatorCore&) = delete;

  /// Blocks: while the queue is full, and while an error is pending and functions run.
  /// Errors: that of an earlier function, which is over with that; the closure is cancelled then.
  ///         FailedPrecondition for one that counts once, without servers, for one with an id
  ///         without a journal, and for an id of another function or other arguments.
  /// Gives its result: that of before for an id that has ended, or is under way.
  std::shared_ptr<RemoteResult> put(ClosurePtr closure);
  /// Forgets all results of the journal. Errors: FailedPrecondition while functions wait or run.
  void forget_finished();
  /// Blocks: until nothing waits or runs. Errors: as put().
  void join();
  /// Errors: as put().
  bool done();

  /// `kept`: what the recipe refers to.
  std::shared_ptr<ResourceHandle> add_resource(ResourceRecipe recipe,
                                               std::vector<std::shared_ptr<const void>> kept);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::internal::coordinator
