// SPDX-License-Identifier: Apache-2.0
//
// Class numbers of sparse losses, checked.
#pragma once

#include <string>

#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// y_true as int64. Shapes: [...] or [..., 1] for scores [..., classes]; the result is [...].
/// Errors: InvalidArgument, naming `loss`, for a shape that does not fit, and for a number outside
///         [0, classes) or not whole, with its value, row and range. Labels on a device are not
///         read: there a number that is not whole becomes -1, and picked() tells.
Tensor class_numbers(const std::string& loss, const Tensor& y_true, const Tensor& scores);

/// The element of each row that its class number names, recorded where recording is on. On a device
/// it is NaN for a number outside [0, classes), and with it the loss: nothing waits for the device
/// to throw. Shapes: values [..., classes], numbers and the result [...].
Tensor picked(const Tensor& values, const Tensor& numbers);

}  // namespace cohort::keras::internal
