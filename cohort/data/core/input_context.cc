// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/input_context.h"

#include "cohort/base/check.h"

namespace cohort::data {

int64_t InputContext::get_per_replica_batch_size(int64_t global_batch_size) const {
  COHORT_CHECK_ARG(global_batch_size % num_replicas_in_sync == 0,
                   "[input_context] expected a global batch size that is a multiple of the ",
                   num_replicas_in_sync, " replicas, got ", global_batch_size);
  return global_batch_size / num_replicas_in_sync;
}

std::string InputContext::to_string() const {
  return str_cat("InputContext(input pipeline id ", input_pipeline_id,
                 ", total: ", num_input_pipelines, ")");
}

}  // namespace cohort::data
