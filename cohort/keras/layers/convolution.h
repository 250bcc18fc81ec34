// SPDX-License-Identifier: Apache-2.0
//
// Convolutions, with the names, options and defaults of Keras 3.
//
//   keras::Conv2D(32, {3, 3}, {.padding = "same", .activation = "relu"});
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "cohort/keras/activations.h"
#include "cohort/keras/layer.h"

namespace cohort::keras {

/// Of rows and columns: {5, 3}. One number stands for both. Python's (5, 3) is C++'s comma
/// operator, which is 3: compilers say so by -Wunused-value, which linking to Cohort turns on.
struct Size2D {
  int64_t height = 1;
  int64_t width = 1;
  Size2D(int64_t both) : height(both), width(both) {}  // NOLINT: implicit by design
  Size2D(int64_t rows, int64_t columns) : height(rows), width(columns) {}
  bool operator==(const Size2D&) const = default;
};

struct Conv2DOptions {
  Size2D strides = 1;
  /// "valid": only whole windows. "same": zeros around, ceil(size / stride) outputs; where the
  /// number of zeros is odd, the one more is at the end.
  std::string padding = "valid";
  std::string data_format = "channels_last";  ///< Or "channels_first".
  Size2D dilation_rate = 1;
  int64_t groups = 1;
  ActivationFunction activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::optional<DType> dtype = {};
  std::string name = {};
};

/// Shapes: [b, h, w, in] to [b, h', w', filters]; kernel [kh, kw, in / groups, filters].
/// Errors: InvalidArgument for strides together with dilation, for channels that the groups do not
///         divide, and for windows larger than the input. TF: keras.layers.Conv2D.
/// Cost: float32 with filters a multiple of 16 and one group, on one intra-op thread, runs Cohort's
///       kernels, anything else LibTorch's convolution, which serves several threads.
class Conv2D : public Layer {
 public:
  Conv2D(int64_t filters, Size2D kernel_size, Conv2DOptions options = {});
};

}  // namespace cohort::keras
