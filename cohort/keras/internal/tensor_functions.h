// SPDX-License-Identifier: Apache-2.0
//
// Functions of keras.ops that nodes of functional models may be, by their names in files; internal.
#pragma once

#include <string>
#include <vector>

#include "cohort/keras/config.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

struct TensorFunction {
  using Compute = Tensor (*)(const std::vector<Tensor>& x, const Config& options);
  const char* module;   ///< In which Keras has the class: "keras.src.ops.nn".
  std::size_t tensors;  ///< 0: one or more, in a list.
  Compute compute;
};

/// nullptr: none of these.
const TensorFunction* find_tensor_function(const std::string& name);
/// In alphabetical order.
std::vector<std::string> tensor_function_names();

}  // namespace cohort::keras::internal
