// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous training with parameter servers: variables live in processes of their own, each
// worker computes gradients by itself, and what it pushes is applied when it arrives.
//
//   ParameterServerStrategy strategy({.cluster_resolver = resolver,
//                                     .variable_partitioner = min_size_partitioner({.max_shards =
//                                     2})});
//   auto scope = strategy.scope();
//   Variable table(random_normal({1000000, 32}), {.name = "table"});   // on the servers
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cluster/cluster_resolver.h"
#include "cohort/coordinator/partitioners.h"
#include "cohort/strategy/strategy.h"

namespace cohort {

/// A page of the coordinator's state for browsers, over HTTP without encryption.
struct StatusPageOptions {
  std::string host = "127.0.0.1";
  int port = 0;  ///< 0: one that is free; a line of the log (INFO) says which.
  /// The password that is asked for, of 16 bytes or more; empty: none. A host beyond this machine's
  /// loopback needs one, and COHORT_ALLOW_INSECURE=1.
  std::string token = {};
};

/// What the coordinator writes down, so that its program can be started again.
struct JournalOptions {
  /// A folder of this job's alone, that is there when the program is started again.
  std::string folder = {};
  /// Whether each record is on the disk before it counts (fdatasync, for several together where
  /// several wait). Without, what was written outlives the process, but not its machine.
  bool sync = true;
};

/// Synchronous training: servers sum what is pushed, and make one update of several pushes, with
/// their mean. TF: tf.compat.v1.train.SyncReplicasOptimizer, ConditionalAccumulator,
/// SparseConditionalAccumulator, which divides a row by the number of pushes that name it, not of
/// all.
struct SyncReplicasOptions {
  /// How many pushes (apply_gradients() of any worker) are one update of a variable, and add 1 to
  /// the optimizer's iterations. Those of one worker count as others' do.
  int replicas_to_aggregate = 1;
  /// Whether a push is dropped whose weights were read before the last update, as TensorFlow does;
  /// else it is part of the next one.
  bool drop_late = true;
};

struct ParameterServerOptions {
  /// Who takes part. Null: what detect_cluster() finds.
  std::shared_ptr<ClusterResolver> cluster_resolver = {};
  /// How variables are cut into shards. Null: each is in one piece on one server.
  Partitioner variable_partitioner = {};
  /// How many servers keep each variable, or shard: with 2 or more nothing acknowledged is lost
  /// while one of a shard's servers lives. Needs the job's store, which cohortrun keeps.
  int replicas = 1;
  /// With it, this program finds functions with ids (ScheduleOptions) finished when it is started
  /// again while servers live, and variables with the values that they had. Unset: a program that
  /// is started again begins with new variables.
  std::optional<JournalOptions> journal = {};
  /// How many steps (scheduled functions, of fit executions) a worker may be ahead of the slowest
  /// one that is there: bounded staleness (SSP, Ho et al. 2013). A worker that has ended c steps
  /// since nothing waited or ran (join()) gets the next one when every other worker has ended c -
  /// bound; 0: all make a step, then all the next one (bulk-synchronous). So a step is computed
  /// without at most (2 * bound + 1) * (workers - 1) updates of others that are applied before its
  /// own is, and as many of one that is started again meanwhile; it may see some of those early.
  /// What a worker that was taken for lost still sends is not counted.
  /// Workers that are lost, or have not come yet, are not waited for; who comes (again) begins with
  /// the slowest. Unset: nobody waits, as TensorFlow.
  std::optional<int> staleness_bound = {};
  /// Several pushes are one update. With as many as there are workers and a staleness_bound of 0
  /// all compute with the same weights: synchronous training. At the end of an epoch of fit those
  /// that wait are an update of their own; steps of other loops should be a multiple of
  /// replicas_to_aggregate before join(), else the rest meets the next round's pushes, of which one
  /// is late. A push is late variable by variable, by the order of arrival there. Needs optimizers
  /// whose rule servers apply; use_ema, gradient_accumulation_steps and constraints throw
  /// Unimplemented. Sums that wait are copied and restored with `replicas`, and are in no
  /// checkpoint. Unset: each push is applied when it arrives.
  std::optional<SyncReplicasOptions> sync_replicas = {};
  /// Serves what `cohort status` shows as a page for browsers, too. Unset: no page.
  std::optional<StatusPageOptions> status_page = {};
};

/// The coordinator's side: made in the task `chief`, or one that the cluster does not name.
/// Variables, and shards of one, are placed on the servers round-robin. Reading a variable asks its
/// server for the current value; within a tape, up to gradient(), it stays what was read first.
/// There is one replica: num_replicas_in_sync() is 1, and strategy.run computes in this process
/// alone.
/// Blocks: until all servers and workers have come, five minutes at most. When the strategy ends,
/// it tells them that the job is over.
/// In the task `evaluator`, which is no part of that cluster: a strategy of this process alone, for
/// a SidecarEvaluator or train_and_evaluate.
/// The chief's address in the cluster, if it has one, serves `cohort status`.
/// With a journal: what another process of this job has left under way is done, or refused for
/// good, before it is made.
/// Errors: FailedPrecondition for a journal that another process has, DataLoss for a damaged one;
///         InvalidArgument for a negative staleness_bound, fewer than one replicas_to_aggregate,
///         more replicas than servers, and for a status page beyond loopback without a token; Error
///         kAlreadyExists where its port is another's; FailedPrecondition for several without a
///         store; InvalidArgument for a cluster without servers or workers, or with other jobs than
///         chief, worker, ps and evaluator, and in a task that is a worker or a server;
///         DeadlineExceeded that names who has not come; FailedPrecondition for a task of another
///         program.
/// TF: tf.distribute.ParameterServerStrategy.
class ParameterServerStrategy : public Strategy {
 public:
  explicit ParameterServerStrategy(ParameterServerOptions options);
};

}  // namespace cohort
