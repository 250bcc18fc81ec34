// SPDX-License-Identifier: Apache-2.0
//
// Reductions among the replicas of one process.
#pragma once

#include <span>

#include "cohort/collectives/options.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal {

/// Element-wise over tensors of equal shape and dtype, strictly in their order: the same bits
/// every time. kMean of integers throws.
/// Errors: InvalidArgument that names both shapes.
Tensor reduce_in_order(ReduceOp op, std::span<const Tensor> values);

}  // namespace cohort::internal
