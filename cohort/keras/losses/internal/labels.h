// SPDX-License-Identifier: Apache-2.0
//
// Class numbers of sparse losses, checked.
#pragma once

#include <string>

#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// y_true as int64. Shapes: [...] or [..., 1] for scores [..., classes]; the result is [...].
/// Errors: InvalidArgument, naming `loss`, for a shape that does not fit, and for a number outside
///         [0, classes) or not whole, with its value, row and range.
Tensor class_numbers(const std::string& loss, const Tensor& y_true, const Tensor& scores);

}  // namespace cohort::keras::internal
