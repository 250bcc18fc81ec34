// SPDX-License-Identifier: Apache-2.0
//
// A strategy of parameter servers from its parts, as the chief, a worker and tests make it, and
// what the layers above ask of one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cohort/cluster/cluster_resolver.h"
#include "cohort/coordinator/internal/sync_pushes.h"
#include "cohort/coordinator/partitioners.h"
#include "cohort/strategy/strategy.h"

namespace cohort::internal::coordinator {

class ClusterConnection;
class Journal;
class ParameterServers;
class StatusServer;
struct WorkerPlace;

struct ParameterServerPlace {
  std::shared_ptr<ParameterServers> servers = {};
  Partitioner partitioner = {};
  std::optional<int> worker = {};  ///< Unset: the coordinator.
  int workers = 1;
  std::shared_ptr<ClusterResolver> cluster_resolver = {};
  std::shared_ptr<ClusterConnection> connection = {};  ///< The coordinator's.
  std::shared_ptr<StatusServer> status = {};           ///< The same.
  std::shared_ptr<Journal> journal = {};               ///< The same, or null.
  bool is_resumed = false;                             ///< The same.
  std::optional<int> staleness_bound = {};             ///< The same.
  SyncPushes sync_pushes = {};
};
/// A strategy over these servers.
Strategy make_parameter_server_strategy(ParameterServerPlace place);

/// Whether this is the chief's side, where a ClusterCoordinator has workers to schedule on.
bool leads_workers(const Strategy& strategy);

/// A worker's side of the strategy. Errors: InvalidArgument for a cluster without servers.
Strategy make_worker_side(const WorkerPlace& place);
/// From here on the strategy's variables are read anew: a function of a worker begins.
void begin_parameter_pass(const Strategy& strategy);
/// The variable of this name on the servers. Errors: InvalidArgument if nobody has made it, and for
///                                                   another strategy.
Variable bind_variable(const Strategy& strategy, const std::string& name, bool trainable = true);

/// Errors: as ParameterServerStrategy.
void check_parameter_cluster(const ClusterSpec& spec, const std::optional<std::string>& task_type);

}  // namespace cohort::internal::coordinator
