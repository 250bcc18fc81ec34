// SPDX-License-Identifier: Apache-2.0
//
// What a function that makes a dataset for one input pipeline may want to know.
#pragma once

#include <cstdint>
#include <string>

namespace cohort::data {

/// TF: tf.distribute.InputContext.
struct InputContext {
  int num_input_pipelines = 1;
  int input_pipeline_id = 0;
  int num_replicas_in_sync = 1;

  /// Errors: InvalidArgument unless the global batch divides by the replicas.
  int64_t get_per_replica_batch_size(int64_t global_batch_size) const;
  std::string to_string() const;
};

}  // namespace cohort::data
