// SPDX-License-Identifier: Apache-2.0
//
// A server's part in the groups that keep replicated shards: group g has the servers g, g + 1, ...
// of the job, so each is the first primary of one group and a backup of others.
//
//   ReplicaHosts hosts({.spec = spec, .task = 1, .security = security});
//   methods.merge(hosts.methods());
//   hosts.begin(2);     // so many copies of everything
//
// Each group's machine (cohort/replication/replica.h) runs on a thread of its own, to which gRPC's
// bring what others send; who leads a group, the job's store decides (store/group_keeper.h).
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "cohort/cluster/cluster_spec.h"
#include "cohort/rpc/security.h"
#include "cohort/rpc/server.h"

namespace cohort::internal {

/// The lease of a group's primary: COHORT_LEASE_MS, else ten seconds.
/// Errors: InvalidArgument for another text than a number of 100 or more.
std::chrono::milliseconds group_lease_from_environment();

/// Threads: thread-safe.
class ReplicaHosts {
 public:
  struct Options {
    ClusterSpec spec = {};
    int task = 0;
    RpcSecurity security = {};
    std::string store = {};                ///< Address of the job's; empty: none.
    std::chrono::milliseconds lease = {};  ///< 0: the environment's, where there are copies.
  };
  explicit ReplicaHosts(Options options);
  ~ReplicaHosts();
  ReplicaHosts(const ReplicaHosts&) = delete;
  ReplicaHosts& operator=(const ReplicaHosts&) = delete;

  /// How many servers have each shard, which is said once. Blocks: never.
  /// Errors: FailedPrecondition for another number than before, and without a store;
  /// InvalidArgument for a lease of the environment that is none.
  void begin(int replicas);
  /// 0: nobody has said it yet.
  int replicas() const;
  /// "ps.replicas", "ps.group" and "ps.member".
  std::map<std::string, RpcHandler> methods();

 private:
  struct Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace cohort::internal
