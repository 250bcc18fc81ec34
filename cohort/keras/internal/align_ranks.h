// SPDX-License-Identifier: Apache-2.0
//
// Keras's rule for two tensors whose ranks differ by a trailing axis of one.
#pragma once

#include <string>
#include <utility>

#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// [b] against [b, 1] becomes [b, 1] twice; deeper ones lose the trailing axis: [b, t] against
/// [b, t, 1] becomes [b, t]. All else stays. TF: squeeze_or_expand_to_same_rank.
std::pair<Tensor, Tensor> align_ranks(const Tensor& a, const Tensor& b);

/// Targets and predictions of an element-wise loss or metric, aligned and fit to be subtracted. As
/// in Keras, axes of one broadcast ([b, 1] against [b, k] is each of k outputs against one target),
/// but only between tensors of one rank: [k] against [b, k] would compare every row with the same.
/// Errors: InvalidArgument that starts with "[name" "method]".
std::pair<Tensor, Tensor> comparable(const std::string& name, const char* method,
                                     const Tensor& y_true, const Tensor& y_pred);

}  // namespace cohort::keras::internal
