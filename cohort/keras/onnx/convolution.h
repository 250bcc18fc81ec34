// SPDX-License-Identifier: Apache-2.0
//
// Sliding windows over spatial axes, as ONNX describes them. Internal.
#pragma once

#include <string>
#include <vector>

#include "cohort/keras/onnx/call.h"

namespace cohort::keras::internal::onnx {

struct Window {
  std::vector<int64_t> sizes, strides;
  std::vector<int64_t> dilations = {};  ///< Empty: none.
  std::string padding = "valid";        ///< Or "same", "causal".
};

/// kernel_shape, strides, dilations and pads; `space` has the sizes of the axes.
/// Errors: Unimplemented for strides over an axis of unknown size that is padded.
Attributes window_attributes(const Call& c, const Window& window, const Shape& space);

}  // namespace cohort::keras::internal::onnx
