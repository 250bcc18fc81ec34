// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation along the last axis by LibTorch's kernels, which on devices are chosen as in
// its own training path: cuDNN's where they fit. Nothing of it is read by the host.
#pragma once

#include "cohort/runtime/tensor.h"
#include "cohort/variables/variable.h"

namespace cohort::keras::internal {

struct TorchNormalized {
  Tensor y, mean, inverse_deviation;
};

/// (x - mean) / sqrt(variance + epsilon) * gamma + beta with the statistics of x on a CPU, recorded
/// where gradients are wanted. gamma and beta may be empty handles. Shapes: x [b, ..., c] of at
/// least one row.
TorchNormalized torch_normalization(const Tensor& x, const Variable& gamma, const Variable& beta,
                                    double epsilon);

/// Statistics that follow those of batches: old * momentum + the batch's * (1 - momentum).
struct MovingStatistics {
  Tensor mean, variance;  ///< Of the replica; written.
  double momentum = 0;
};

/// The same on a device, which moves the statistics, too; x may be of a narrower type than gamma
/// and beta. Cost: a batch normalisation and three launches over [c].
Tensor device_normalization(const Tensor& x, const Variable& gamma, const Variable& beta,
                            double epsilon, const MovingStatistics& moving);

/// The same with given statistics, in LibTorch's recorded operation.
Tensor device_inference(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                        const Tensor& mean, const Tensor& variance, double epsilon);

}  // namespace cohort::keras::internal
