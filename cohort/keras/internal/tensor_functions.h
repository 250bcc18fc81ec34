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
  /// How the shape of the result is found where sizes are unknown: by computing with some; of
  /// tensors that broadcast, which may be numbers, too; of tensors that are alike, joined or
  /// stacked; as Reshape is told.
  enum class Shapes { kTried, kBroadcast, kJoined, kStacked, kReshaped };
  const char* module;   ///< In which Keras has the class: "keras.src.ops.nn".
  std::size_t tensors;  ///< 0: one or more, in a list.
  Compute compute;
  Shapes shapes = Shapes::kTried;
  std::vector<std::string> options = {};  ///< What its config says besides the name.
};

/// A tensor without axes that does not change the type of what it meets.
Tensor wrapped_number(const Config& number);
/// nullptr: none of these.
const TensorFunction* find_tensor_function(const std::string& name);
/// In alphabetical order.
std::vector<std::string> tensor_function_names();

}  // namespace cohort::keras::internal
