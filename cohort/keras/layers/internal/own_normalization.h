// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation along the last axis by the kernels of kernels.h: float32 on a CPU. Sums are
// of chunks that the shape alone gives, so that no bit depends on the threads.
#pragma once

#include <array>

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

/// What the gradients of batch normalisation are asked for.
struct NormalizationWants {
  bool x = false, gamma = false, beta = false;
};
/// The gradients by x, gamma and beta of relu?((x - mean) / sqrt(variance + epsilon) * gamma +
/// beta) along the last axis, where mean and variance are functions of x, in recorded operations.
/// `g` is that of the result. gamma and beta may be undefined, and beta is read only if
/// `rectified`; what is not wanted stays undefined.
std::array<Tensor, 3> recorded_normalization_gradients(const Tensor& x, const Tensor& g,
                                                       const Tensor& gamma, const Tensor& beta,
                                                       double epsilon, bool rectified,
                                                       const NormalizationWants& wants);

/// relu?(x * scale + shift), below autograd.
Tensor scaled_rows(const Tensor& x, const Tensor& scale, const Tensor& shift, bool rectified);

}  // namespace cohort::keras::internal
