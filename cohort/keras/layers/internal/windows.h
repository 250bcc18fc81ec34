// SPDX-License-Identifier: Apache-2.0
//
// What convolutions and pooling share: padding as TensorFlow counts it, and layouts.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "cohort/keras/layers/convolution.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// One axis of a window.
struct Window {
  int64_t size = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  bool same = false;

  int64_t extent() const { return (size - 1) * dilation + 1; }
  /// Outputs for an input of `n`; kUnknownDim stays, and too small an input gives 0 or less.
  int64_t outputs(int64_t n) const;
  /// In front and behind. "valid" has none.
  std::array<int64_t, 2> padding(int64_t n) const;
};

/// Both axes, for inputs [b, h, w, c].
struct Window2D {
  Window rows, columns;

  bool needs_padding(const Tensor& x) const;
  /// x with `value` around. Differentiable where recording is on.
  Tensor pad(const Tensor& x, double value) const;
  /// The part of a padded gradient that belongs to an input of these sizes.
  Tensor crop(const Tensor& padded, int64_t height, int64_t width) const;
};

/// Errors: InvalidArgument, prefixed by `who`.
Window2D make_window(const std::string& who, Size2D size, Size2D strides, Size2D dilation,
                     const std::string& padding);
/// True for "channels_first". Errors: InvalidArgument for other texts than Keras's two.
bool is_channels_first(const std::string& who, const std::string& data_format);

/// The same memory seen as [b, c, h, w], and back.
Tensor to_channels_first(const Tensor& x);
Tensor to_channels_last(const Tensor& x);

/// [b, h', w', channels] for [b, h, w, c], either layout.
/// Errors: InvalidArgument, prefixed by `who`, if the window is larger than the input.
Shape output_shape(const std::string& who, const Window2D& window, const Shape& input,
                   int64_t channels, bool channels_first);

}  // namespace cohort::keras::internal
