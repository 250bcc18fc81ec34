// SPDX-License-Identifier: Apache-2.0
//
// Pooling over images, with the names, options and defaults of Keras 3.
//
//   keras::MaxPooling2D();                                  // 2 x 2
//   keras::AveragePooling2D(3, {.strides = 2, .padding = "same"});
#pragma once

#include <optional>
#include <string>

#include "cohort/keras/layer.h"
#include "cohort/keras/layers/convolution.h"

namespace cohort::keras {

struct Pooling2DOptions {
  std::optional<Size2D> strides = {};  ///< Unset: pool_size.
  std::string padding = "valid";       ///< Or "same"; what lies outside does not count.
  std::string data_format = "channels_last";
  std::string name = {};
};

/// Shapes: [b, h, w, c] to [b, h', w', c]. The gradient of equal maxima goes to the first.
/// Cost: float32 on one intra-op thread runs Cohort's kernels, anything else LibTorch's pooling,
///       which serves several threads.
class MaxPooling2D : public Layer {
 public:
  explicit MaxPooling2D(Size2D pool_size = 2, Pooling2DOptions options = {});
};

/// Shapes: [b, h, w, c] to [b, h', w', c].
class AveragePooling2D : public Layer {
 public:
  explicit AveragePooling2D(Size2D pool_size = 2, Pooling2DOptions options = {});
};

struct GlobalPooling2DOptions {
  bool keepdims = false;
  std::string data_format = "channels_last";
  std::string name = {};
};
/// Shapes: [b, h, w, c] to [b, c], or [b, 1, 1, c] with keepdims.
class GlobalAveragePooling2D : public Layer {
 public:
  explicit GlobalAveragePooling2D(GlobalPooling2DOptions options = {});
};

}  // namespace cohort::keras
