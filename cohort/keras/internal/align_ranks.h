// SPDX-License-Identifier: Apache-2.0
//
// Keras's rule for two tensors whose ranks differ by a trailing axis of one.
#pragma once

#include <utility>

#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// [b] against [b, 1] becomes [b, 1] twice; deeper ones lose the trailing axis: [b, t] against
/// [b, t, 1] becomes [b, t]. All else stays. TF: squeeze_or_expand_to_same_rank.
std::pair<Tensor, Tensor> align_ranks(const Tensor& a, const Tensor& b);

}  // namespace cohort::keras::internal
