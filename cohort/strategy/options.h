// SPDX-License-Identifier: Apache-2.0
//
// Options of strategies' verbs.
#pragma once

#include <optional>
#include <vector>

namespace cohort {

/// How often distribute_datasets_from_function calls its function. TF: InputReplicationMode.
enum class InputReplicationMode {
  kPerWorker,   ///< Once: a worker's replicas get its batches round-robin.
  kPerReplica,  ///< Once for each replica, which reads a dataset of its own.
};

/// TF: tf.distribute.InputOptions.
struct InputOptions {
  /// True: a background thread prepares steps before they are asked for, and steps of GPUs come in
  /// their memory, copied while they compute. False: none does, and tensors are the host's. Unset:
  /// as true, but on CPUs only where there is something to gain: where batches are rows in memory
  /// each replica gathers its own part, and what ends in prefetch was read ahead already.
  std::optional<bool> fetch_to_device = {};
  InputReplicationMode replication_mode = InputReplicationMode::kPerWorker;
  /// Needs kPerReplica and fetch_to_device = false. Has no effect: pipelines run on the host.
  bool place_dataset_on_device = false;
  int per_replica_buffer_size = 1;  ///< Steps that the background thread may be ahead.

  /// distribute_dataset only: how much of each batch each replica of all workers gets, in the
  /// proportion of these numbers, for replicas that are not equally fast. Empty: all alike.
  std::vector<double> replica_weights = {};
  /// distribute_dataset only, where workers share the data by elements (AutoShardPolicy::kData):
  /// the parts of one worker are neighbours in the batch, as the replicas of one strategy with
  /// all of them have it. False: worker w of W has the parts w, w + W, ..., as in TensorFlow.
  bool contiguous_shards = false;
};

/// For TPUs alone: Cohort ignores it. TF: tf.distribute.RunOptions.
struct RunOptions {
  bool enable_dynamic_batch_size = true;
  bool bucketizing_dynamic_shape = false;
};

}  // namespace cohort
