// SPDX-License-Identifier: Apache-2.0
//
// What convolutions and pooling share: padding as TensorFlow counts it, and layouts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cohort/keras/layers/sizes.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

enum class Padding { kValid, kSame, kCausal };

/// One axis of a window.
struct Window {
  int64_t size = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  Padding padding = Padding::kValid;

  int64_t extent() const { return (size - 1) * dilation + 1; }
  /// Outputs for an input of `n`; kUnknownDim stays, and too small an input gives 0 or less.
  int64_t outputs(int64_t n) const;
  /// In front and behind.
  std::array<int64_t, 2> around(int64_t n) const;
};

/// One to three axes, for inputs [b, axes..., c].
class WindowBox {
 public:
  explicit WindowBox(std::span<const Window> axes);

  int rank() const { return rank_; }
  const Window& operator[](int axis) const { return axes_[static_cast<std::size_t>(axis)]; }
  std::span<const Window> axes() const { return {axes_.data(), static_cast<std::size_t>(rank_)}; }
  /// With an axis of 1 in front.
  WindowBox lifted() const;

  bool needs_padding(const Tensor& x) const;
  /// x with `value` around. Differentiable where recording is on.
  Tensor pad(const Tensor& x, double value) const;
  /// The part of a padded gradient that belongs to an input of the sizes of `like`.
  Tensor crop(const Tensor& padded, const Tensor& like) const;

 private:
  std::array<Window, 3> axes_;
  int rank_;
};

/// Errors: InvalidArgument, prefixed by `who`.
template <int N>
WindowBox make_window(const std::string& who, const Sizes<N>& size, const Sizes<N>& strides,
                      const Sizes<N>& dilation, const std::string& padding);
/// True for "channels_first". Errors: InvalidArgument for other texts than Keras's two.
bool is_channels_first(const std::string& who, const std::string& data_format);

/// The same memory of [b, axes..., c] seen as [b, c, axes...], and back.
Tensor to_channels_first(const Tensor& x);
Tensor to_channels_last(const Tensor& x);

/// Where the channels are, and the axes of the window begin. Errors: InvalidArgument, prefixed by
/// `who`, for shapes that have not `rank` axes besides batch and channels.
struct DataLayout {
  DataLayout(const std::string& who, const Shape& shape, int rank, bool channels_first);
  std::size_t channels, first;
};

/// [b, axes'..., channels] for [b, axes..., c], either layout.
/// Errors: InvalidArgument, prefixed by `who`, if the window is larger than the input.
Shape output_shape(const std::string& who, const WindowBox& window, const Shape& input,
                   int64_t channels, bool channels_first);

}  // namespace cohort::keras::internal
