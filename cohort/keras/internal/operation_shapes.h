// SPDX-License-Identifier: Apache-2.0
//
// The shapes that come of operations on symbolic tensors; internal.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cohort/data/core/element_spec.h"
#include "cohort/keras/internal/tensor_functions.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// An unknown size beside another one is that one, beside 1 it stays unknown. `kind` is for errors.
/// Errors, of all: InvalidArgument where shapes do not fit.
Shape broadcast_shape(const std::string& kind, const Shape& a, const Shape& b);
/// Of Matmul.
Shape product_shape(Shape a, Shape b);

/// What a function makes of tensors; `compute` runs it, on tensors without memory.
TensorSpec spec_of_function(const std::string& kind, const TensorFunction& function,
                            const Config& options, const std::vector<TensorSpec>& inputs,
                            const std::function<Tensor(const std::vector<Tensor>&)>& compute);

}  // namespace cohort::keras::internal
