// SPDX-License-Identifier: Apache-2.0
//
// The same program in several processes, which train one model together:
//
//   MultiWorkerMirroredStrategy strategy;   // TF_CONFIG names the workers
//   auto scope = strategy.scope();
//   keras::Sequential model({keras::Dense(10)});
//
// Every worker runs the same program and calls the same in the same order. Variables take the
// chief's first values; gradients, sums and metrics are of all replicas of all workers.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cluster/cluster_resolver.h"
#include "cohort/cluster/environment.h"
#include "cohort/collectives/options.h"
#include "cohort/strategy/strategy.h"

namespace cohort {

struct MultiWorkerMirroredOptions {
  /// Null: what detect_cluster() finds; where it finds none, this process is alone.
  std::shared_ptr<ClusterResolver> cluster_resolver = {};
  /// bytes_per_pack: of gradients that travel at once; bits do not depend on it.
  /// bfloat16_gradients: the same on all workers; bits are those of rounded gradients then.
  /// timeout: the most that a worker waits for another one, 10 minutes if it is not set.
  /// implementation: kAuto and kRing are shared memory on one machine, else TCP. kMpi: MPI carries
  /// messages between workers that mpirun has started; bits are the same.
  CommunicationOptions communication_options = {};
  /// This worker's, one for each of its replicas; the same number on all workers. Empty: all GPUs
  /// that it sees (CUDA_VISIBLE_DEVICES), else CPU:0.
  std::vector<Device> devices = {};
  /// The most that the first workers wait for the last ones to start.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(5);
  /// Every worker sends a heartbeat each `heartbeat`. One that was silent for `lease` (it hangs, is
  /// stopped or cut off) is out of the job, and the others get Unavailable that names it.
  /// Unset: COHORT_HEARTBEAT_MS and COHORT_LEASE_MS, else 1 s and 10 s. A lease of 0: no checks.
  std::optional<std::chrono::milliseconds> heartbeat = {};
  std::optional<std::chrono::milliseconds> lease = {};
  /// A worker whose own part of a step takes this many times as long as the others' is named in the
  /// chief's log, with how much the others wait for it. Unset: COHORT_STRAGGLER_RATIO, else 2.
  /// 0: no checks. Needs leases.
  std::optional<double> straggler_ratio = {};
  /// Allows addresses beyond loopback without TLS (COHORT_TLS_CERTIFICATE; cohortrun makes them),
  /// on networks that you trust: nothing is encrypted or proved. COHORT_ALLOW_INSECURE=1 does the
  /// same.
  bool allow_insecure = false;
  bool check_copies = false;  ///< As MirroredOptions::check_copies.
  /// As MirroredOptions::intra_op_threads; workers that have the same cores share them out.
  int intra_op_threads = 0;
};

/// Replicas in several processes, variables mirrored, gradients summed in the order of the workers:
/// W workers of one replica have the bits of MirroredStrategy with W replicas, if each has as many
/// threads. Without a cluster, with one worker, and in an evaluator it is MirroredStrategy.
/// Worker 0, the chief, keeps what the workers agree on (their leases), unless COHORT_STORE names
/// a store of the launcher's.
/// Blocks: until all workers have come.
/// Errors: InvalidArgument for a malformed cluster, a process that is not its chief, a worker or an
///         evaluator, for addresses beyond loopback without TLS or allow_insecure, and for kMpi
///         with certificates;
///         FailedPrecondition on both workers, naming both, that were started with another
///         TF_CONFIG, build of Cohort, LibTorch, CPU capability, set_seed, number of devices,
///         bfloat16_gradients or kMpi, and with kMpi unless mpirun has started exactly the workers,
///         even one, or after MPI_Finalize; DeadlineExceeded that names who has not come, or the
///         store that does not answer; Unauthenticated from a store of another job; Unimplemented
///         for kNccl and kGloo, and for kMpi where Cohort was built without MPI.
/// TF: tf.distribute.MultiWorkerMirroredStrategy.
class MultiWorkerMirroredStrategy : public Strategy {
 public:
  explicit MultiWorkerMirroredStrategy(MultiWorkerMirroredOptions options = {});
};

}  // namespace cohort
