// SPDX-License-Identifier: Apache-2.0
//
// What workers and parameter servers of a job do: they serve its coordinator. All tasks run the
// same program, and begin so:
//
//   int main() {
//     auto resolver = std::make_shared<TFConfigClusterResolver>();
//     if (run_task(*resolver)) return 0;   // a worker or parameter server, whose job is over
//     ...                                  // the chief: a ParameterServerStrategy, a coordinator
//   }
#pragma once

#include <memory>
#include <string>

#include "cohort/cluster/cluster_resolver.h"
#include "cohort/cluster/cluster_spec.h"

namespace cohort {

struct ServerOptions {
  std::string job_name = {};  ///< Empty: the cluster's only one.
  int task_index = -1;        ///< -1: the job's only one.
  std::string protocol = "grpc";
};

/// Runs one worker or parameter server task, from construction on. Who may call it, and by TLS or
/// not, say COHORT_JOB_TOKEN, COHORT_TLS_CERTIFICATE, ... and COHORT_ALLOW_INSECURE.
/// Threads: join() from one.
/// TF: tf.distribute.Server.
class Server {
 public:
  /// Errors: InvalidArgument for a task that is not there, another protocol, an address beyond
  ///         loopback without TLS; Error kAlreadyExists for one where another program listens.
  explicit Server(ClusterSpec spec, ServerOptions options = {});
  /// Blocks: until the function that runs has ended.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// "grpc://host:port".
  std::string target() const;
  /// Blocks: until the coordinator has come and ended, or was silent for COHORT_COORDINATOR_LEASE
  /// seconds (300 if unset), in which another one may take over. TF: for ever.
  void join();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

/// In a worker or parameter server: serves until the job is over, then true. In any other task, and
/// without a cluster: false at once. Errors: as Server's.
bool run_task(const ClusterResolver& resolver);

}  // namespace cohort
