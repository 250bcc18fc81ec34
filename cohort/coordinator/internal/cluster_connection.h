// SPDX-License-Identifier: Apache-2.0
//
// What a coordinator has of the parameter servers and workers of its job:
//
//   ClusterConnection connection({.spec = resolver->cluster_spec()});   // waits for all of them
//   Payload answer = connection.worker(0)->call("worker.run", request);
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cohort/cluster/cluster_spec.h"
#include "cohort/coordinator/internal/coordinator_identity.h"
#include "cohort/coordinator/status/status_board.h"
#include "cohort/rpc/client.h"
#include "cohort/rpc/security.h"

namespace cohort::internal::coordinator {

struct ClusterConnectionOptions {
  ClusterSpec spec = {};
  rpc::RpcSecurity security = rpc::security_from_environment();
  /// Until all tasks are there.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(5);
  /// How often each task is asked whether it lives, and how long it may take to say so.
  std::chrono::milliseconds heartbeat = std::chrono::milliseconds(500);
  std::chrono::milliseconds lease = std::chrono::seconds(10);
  /// Copies of the parameters: with several the job outlives a server, which may come back.
  int replicas = 1;
  /// Who this one is, before servers hear of it. Unset: one that follows all, and begins anew.
  std::function<CoordinatorIdentity(const std::vector<NewestCoordinator>&)> begin = {};
  /// Without replicas: a server has not kept what it goes on with, and so all begin anew.
  std::function<void(const CoordinatorIdentity&)> begin_anew = {};
  /// Who shows what the tasks are like. Null: one of its own.
  std::shared_ptr<StatusBoard> board = {};
};

/// A session that nobody has had.
uint64_t random_session();

/// A coordinator's session with the tasks of its job. Threads: thread-safe.
class ClusterConnection {
 public:
  /// Blocks: until all parameter servers and workers have answered.
  /// Errors: InvalidArgument for a cluster without any, and as RpcClient; DeadlineExceeded that
  ///         names who has not come; FailedPrecondition that names a task of another program, with
  ///         the first function that differs, and where another coordinator has begun meanwhile;
  ///         Unauthenticated.
  explicit ClusterConnection(ClusterConnectionOptions options);
  /// Tells all tasks that the job is over.
  ~ClusterConnection();
  ClusterConnection(const ClusterConnection&) = delete;
  ClusterConnection& operator=(const ClusterConnection&) = delete;

  int num_workers() const;
  int num_ps() const;
  const ClusterSpec& spec() const;
  const CoordinatorIdentity& identity() const;
  /// Whether all servers have kept what they had of the session that this one goes on with.
  bool is_resumed() const;
  StatusBoard& board() const;
  /// Of the servers' groups; 0 where each parameter is on one server.
  std::chrono::milliseconds group_lease() const;
  std::shared_ptr<rpc::RpcClient> ps(int index) const;
  /// Another one after drop_calls().
  std::shared_ptr<rpc::RpcClient> worker(int index) const;
  /// Which start of the worker's process has answered last.
  uint64_t worker_incarnation(int index) const;

  /// The resources that an ended coordinator of this session has left on a worker, for the next one
  /// to drop.
  void leave_resources(int worker, const std::set<uint64_t>& ids);
  /// All, once.
  std::set<uint64_t> take_left_resources(int worker);

  /// Ends all calls to the worker that are under way, by Cancelled.
  void drop_calls(int worker);
  /// Reaches a worker (again), which may have been started anew. Blocks: `timeout` at most.
  /// Errors: Unavailable or DeadlineExceeded where it is not there; FailedPrecondition and
  ///         Unauthenticated as the constructor.
  void greet_worker(int worker, std::chrono::milliseconds timeout);

  /// `on_failure` is called, on another thread and perhaps several times, when a parameter server
  /// is lost: it did not answer three times, or was started anew, without its variables; and by
  /// FailedPrecondition when another coordinator has followed this one. An empty one ends it, and
  /// waits until it is not called any more.
  void watch_servers(std::function<void(std::exception_ptr)> on_failure);
  /// Which parameter server has this address; -1: none.
  int ps_at(const std::string& address) const;
  /// A worker's function could not reach it. Counts as an answer that did not come.
  void report_ps(int ps, const std::string& what);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::internal::coordinator
