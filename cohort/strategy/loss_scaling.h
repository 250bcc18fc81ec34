// SPDX-License-Identifier: Apache-2.0
//
// Losses of custom loops: per-example values become a scalar whose sum over the replicas is the
// mean over the global batch.
#pragma once

#include <optional>

#include "cohort/runtime/tensor.h"

namespace cohort {

struct AverageLossOptions {
  /// Shapes: as the losses, with axes of 1, or with one axis less: [b] for [b, n] is of rows.
  Tensor sample_weight = {};
  std::optional<int64_t> global_batch_size = {};  ///< Default: the own rows times the replicas.
};

/// sum(per_example_loss * weight) / global_batch_size; 0 where that is 0, as in TensorFlow.
/// Shapes: per_example_loss [b, ...]. Errors: InvalidArgument for a scalar, a negative size,
/// or weights that do not fit; FailedPrecondition cross-replica without a size. TF:
/// tf.nn.compute_average_loss.
Tensor compute_average_loss(const Tensor& per_example_loss, const AverageLossOptions& options = {});

/// sum(loss) / replicas. Errors: FailedPrecondition in cross-replica context.
/// TF: tf.nn.scale_regularization_loss.
Tensor scale_regularization_loss(const Tensor& loss);

}  // namespace cohort
