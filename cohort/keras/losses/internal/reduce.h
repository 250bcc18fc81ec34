// SPDX-License-Identifier: Apache-2.0
//
// Keras's reductions of per-example values with sample weights, as recorded LibTorch operations.
#pragma once

#include "cohort/keras/losses/loss.h"

namespace cohort::keras::internal {

/// scale * reduction(values * weight). An empty batch, or weights that sum to 0, give 0.
/// Weights and values broadcast as in Keras. Errors: InvalidArgument for weights that do not fit.
Tensor reduce_values(const Tensor& values, const Tensor& weight, Reduction reduction, double scale);

/// The same of values that count only where `mask` (bool) is true: means are over those. As Keras,
/// kMeanWithSampleWeight divides by the sum of the weights that count.
Tensor reduce_masked(const Tensor& values, const Tensor& mask, const Tensor& weight,
                     Reduction reduction, double scale);

/// y_true with y_pred's dtype, and both of one shape.
/// Errors: InvalidArgument, naming `loss`, if shapes then differ.
std::pair<Tensor, Tensor> matched(const std::string& loss, const Tensor& y_true,
                                  const Tensor& y_pred);

}  // namespace cohort::keras::internal
