// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation along the last axis by the kernels of kernels.h: float32 on a CPU. Sums are
// of chunks that the shape alone gives, so that no bit depends on the threads.
#pragma once

#include "cohort/runtime/tensor.h"
#include "cohort/variables/variable.h"

namespace cohort::keras::internal {

bool has_own_normalization(const Tensor& x);

struct OwnNormalized {
  Tensor y, mean;
  Tensor variance;  ///< In float64.
};

/// relu?((x - mean) / sqrt(variance + epsilon) * gamma + beta) with the statistics of x, recorded
/// where gradients are wanted. gamma and beta may be empty handles. x has at least one row.
OwnNormalized own_normalization(const Tensor& x, const Variable& gamma, const Variable& beta,
                                double epsilon, bool rectified);

/// relu?(x * scale + shift), below autograd.
Tensor scaled_rows(const Tensor& x, const Tensor& scale, const Tensor& shift, bool rectified);

}  // namespace cohort::keras::internal
