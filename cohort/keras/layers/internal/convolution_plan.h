// SPDX-License-Identifier: Apache-2.0
//
// What the layers of convolutions share: their window, checks and shapes, and the convolution that
// LibTorch records.
#pragma once

#include <ATen/core/DimVector.h>

#include <memory>
#include <string>

#include "cohort/base/check.h"
#include "cohort/keras/layer.h"
#include "cohort/keras/layers/internal/windows.h"

namespace cohort::keras::internal {

/// A window over [b, axes..., c], and what comes with it.
struct Convolution {
  WindowBox window;
  int64_t groups = 1;
  bool relu = false;

  at::DimVector stride() const { return each(&Window::stride); }
  at::DimVector dilation() const { return each(&Window::dilation); }
  at::DimVector none() const { return at::DimVector(window.axes().size(), 0); }

 private:
  at::DimVector each(int64_t Window::*member) const {
    at::DimVector all;
    for (const Window& axis : window.axes()) all.push_back(axis.*member);
    return all;
  }
};

struct ConvolutionPlan {
  std::string who;  ///< For errors: "conv2d".
  Convolution convolution;
  Convolution image;  ///< The same, where a series is an image of one row.
  bool channels_first = false;

  int rank() const { return convolution.window.rank(); }
  /// Errors: InvalidArgument unless it is.
  void check_positive(const char* what, int64_t number) const;
  /// The channels of inputs of this shape. Errors: InvalidArgument if they are not known.
  int64_t channels_in(const std::string& name, const Shape& input_shape) const;
  InputSpec input_spec(int64_t channels) const;
  /// Errors: InvalidArgument for windows larger than the input.
  Shape output_shape(const std::string& name, const Shape& input_shape, int64_t filters) const;
};

/// Of a layer with these options. Errors: InvalidArgument for what no convolution can have.
template <int N, class C>
std::unique_ptr<ConvolutionPlan> make_plan(const std::string& who, const C& o, bool causal) {
  COHORT_CHECK_ARG(causal || o.padding != "causal", "[", who,
                   "] expected padding valid or same, got causal");
  COHORT_CHECK_ARG(o.strides == Sizes<N>(1) || o.dilation_rate == Sizes<N>(1), "[", who,
                   "] strides > 1 and dilation_rate > 1 cannot be combined, got ", o.strides,
                   " and ", o.dilation_rate);
  const WindowBox window = make_window(who, o.kernel_size, o.strides, o.dilation_rate, o.padding);
  return std::make_unique<ConvolutionPlan>(ConvolutionPlan{
      who, {window}, {N == 1 ? window.lifted() : window}, is_channels_first(who, o.data_format)});
}

/// [k..., in, out].
template <int N>
Shape kernel_shape(const Sizes<N>& kernel_size, int64_t in, int64_t out) {
  Shape shape(kernel_size.each.begin(), kernel_size.each.end());
  shape.insert(shape.end(), {in, out});
  return shape;
}

/// Keras's [k..., a, b] as LibTorch's [b, a, k...], the same memory.
inline Tensor kernel_view(const Tensor& kernel) { return kernel.movedim({-1, -2}, {0, 1}); }

/// Recorded by LibTorch, whatever the number of axes; x is [b, axes..., c] and not padded, the
/// kernel LibTorch's, bias may be undefined.
Tensor plain_convolution(const Convolution& c, const Tensor& x, const Tensor& kernel,
                         const Tensor& bias, int64_t groups);

inline Tensor value_or_none(const Variable& bias) { return bias ? bias.value() : Tensor(); }

/// The part of call() around `compute`, which works on [b, axes..., c].
template <class F>
Tensor in_channels_last(const ConvolutionPlan& plan, const Tensor& input, DType dtype,
                        F&& compute) {
  const Tensor x = input.scalar_type() == dtype ? input : input.to(dtype);
  if (!plan.channels_first) return compute(x);
  return to_channels_first(compute(to_channels_last(x)));
}

}  // namespace cohort::keras::internal
