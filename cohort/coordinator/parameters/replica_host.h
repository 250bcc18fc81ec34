// SPDX-License-Identifier: Apache-2.0
//
// A server's part in the groups that keep replicated shards: group g has the servers g, g + 1, ...
// of the job, so each is the first primary of one group and a backup of others.
//
//   ReplicaHosts hosts({.spec = spec, .task = 1, .security = security});
//   methods.merge(hosts.methods());
//   hosts.begin(2, job);     // so many copies of everything
//
// Each group's machine (cohort/replication/replica.h) runs on a thread of its own, to which gRPC's
// bring what others send; who leads a group, the job's store decides (store/group_keeper.h).
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/cluster/cluster_spec.h"
#include "cohort/coordinator/status/task_report.h"
#include "cohort/rpc/client.h"
#include "cohort/rpc/security.h"
#include "cohort/rpc/server.h"

namespace cohort::internal::coordinator {

/// The lease of a group's primary: COHORT_LEASE_MS, else ten seconds.
/// Errors: InvalidArgument for another text than a number of 100 or more.
std::chrono::milliseconds group_lease_from_environment();

/// What a server knows of its groups.
struct GroupFacts {
  int replicas = 0;  ///< 0: nobody has said it yet.
  uint64_t job = 0;
  std::chrono::milliseconds lease = {};
};
/// Asks a server. Errors: as RpcClient.
GroupFacts group_facts_of(rpc::RpcClient& server, std::chrono::milliseconds timeout);
/// Tells it. Errors: as RpcClient, and as ReplicaHosts::begin().
void tell_group_facts(rpc::RpcClient& server, const GroupFacts& facts,
                      std::chrono::milliseconds timeout);
/// What calls to groups may take: a minute, or what two failovers, one behind the other, do.
std::chrono::milliseconds group_timeout(std::chrono::milliseconds lease);

/// Threads: thread-safe.
class ReplicaHosts {
 public:
  struct Options {
    ClusterSpec spec = {};
    int task = 0;
    rpc::RpcSecurity security = {};
    std::string store = {};                ///< Address of the job's; empty: none.
    std::chrono::milliseconds lease = {};  ///< 0: the environment's, where there are copies.
  };
  explicit ReplicaHosts(Options options);
  ~ReplicaHosts();
  ReplicaHosts(const ReplicaHosts&) = delete;
  ReplicaHosts& operator=(const ReplicaHosts&) = delete;

  /// How many servers have each shard, and a number by which the store tells the job's groups from
  /// those of others; it is said once. Blocks: never.
  /// Errors: FailedPrecondition for other numbers than before, and without a store;
  /// InvalidArgument for a lease of the environment that is none.
  void begin(int replicas, uint64_t job);
  /// Its groups end, as if the process had been killed: what is asked then is to be asked again.
  /// Blocks: until their threads have ended.
  void end();
  GroupFacts facts() const;
  /// Of its part in each group.
  std::vector<GroupReport> reports() const;
  /// "ps.replicas", "ps.group" and "ps.member".
  std::map<std::string, rpc::RpcHandler> methods();
  /// Those that carry numbers: for RpcServerOptions::lanes.
  static std::vector<std::string> lanes() { return {"ps.group", "ps.member"}; }

 private:
  struct Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace cohort::internal::coordinator
