// SPDX-License-Identifier: Apache-2.0
//
// Options of strategies' verbs.
#pragma once

namespace cohort {

/// How often distribute_datasets_from_function calls its function. TF: InputReplicationMode.
enum class InputReplicationMode { kPerWorker, kPerReplica };

/// TF: tf.distribute.InputOptions.
struct InputOptions {
  bool fetch_to_device = true;  ///< Has no effect on CPUs, where elements already are.
  InputReplicationMode replication_mode = InputReplicationMode::kPerWorker;
  bool place_dataset_on_device = false;
  int per_replica_buffer_size = 1;
};

/// Looked at by TPUs only. TF: tf.distribute.RunOptions.
struct RunOptions {
  bool enable_dynamic_batch_size = true;
  bool bucketizing_dynamic_shape = false;
};

}  // namespace cohort
