// SPDX-License-Identifier: Apache-2.0
//
// What ClusterCoordinator asks of a strategy whose variables live on parameter servers.
#pragma once

#include <memory>
#include <optional>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/internal/sync_pushes.h"

namespace cohort::internal::coordinator {

class ClusterConnection;
class CoordinatorCore;
class Journal;
class ParameterServers;

/// A StrategyExtended derives this, too. Threads: thread-safe.
class Coordinated {
 public:
  Coordinated() = default;
  virtual ~Coordinated() = default;
  Coordinated(const Coordinated&) = delete;
  Coordinated& operator=(const Coordinated&) = delete;

  virtual std::shared_ptr<ClusterConnection> connection() = 0;
  /// Which functions change things on. Null: none.
  virtual std::shared_ptr<ParameterServers> servers() { return nullptr; }
  /// Where its functions are written down. Null: nowhere.
  virtual std::shared_ptr<Journal> journal() { return nullptr; }
  /// Whether its variables, and what the journal says of functions, are those of a process before.
  virtual bool is_resumed() { return false; }
  /// How many steps a worker may be ahead of the slowest. Unset: any.
  virtual std::optional<int> staleness_bound() { return std::nullopt; }
  /// What workers' strategies are made with.
  virtual SyncPushes sync_pushes() { return {}; }
  /// The one coordinator of this strategy, made at the first call.
  std::shared_ptr<CoordinatorCore> coordinator();

 private:
  base::Mutex mutex_;
  std::weak_ptr<CoordinatorCore> coordinator_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort::internal::coordinator
