// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of series, images and volumes, with the names, options and defaults of Keras 3.
//
//   keras::Conv2D(32, {3, 3}, {.padding = "same", .activation = "relu"});
//   keras::Conv1D(16, 5, {.padding = "causal"});
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cohort/keras/activations.h"
#include "cohort/keras/layer.h"
#include "cohort/keras/layers/sizes.h"

namespace cohort::keras {

namespace internal {
struct ConvolutionPlan;

/// What every convolution is told.
void convolution_fields(auto& c, auto&& f) {
  f("strides", c.strides);
  f("padding", c.padding);
  f("data_format", c.data_format);
  f("dilation_rate", c.dilation_rate);
  f("activation", c.activation);
  f("use_bias", c.use_bias);
  f("bias_initializer", c.bias_initializer);
  f("bias_regularizer", c.bias_regularizer);
  f("activity_regularizer", c.activity_regularizer);
  f("bias_constraint", c.bias_constraint);
}

/// The handle of a convolution with filters.
template <class L>
class FiltersHandle : public Layer {
 public:
  using Options = typename L::Options::Given;
  using Size = decltype(L::Options::kernel_size);
  FiltersHandle(int64_t filters, Size kernel_size, Options options = {})
      : Layer(std::make_shared<L>(
            typename L::Options{std::move(options), filters, std::move(kernel_size)})) {}
};
}  // namespace internal

template <int N>
struct ConvOptions {
  Sizes<N> strides = 1;
  /// "valid": only whole windows. "same": zeros around, ceil(size / stride) outputs; where the
  /// number of zeros is odd, the one more is at the end. "causal", of Conv1D: zeros in front, so
  /// that a step sees none that comes later.
  std::string padding = "valid";
  std::string data_format = "channels_last";  ///< Or "channels_first".
  Sizes<N> dilation_rate = 1;
  int64_t groups = 1;
  ActivationFunction activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};
using Conv1DOptions = ConvOptions<1>;
using Conv2DOptions = ConvOptions<2>;
using Conv3DOptions = ConvOptions<3>;

template <int N>
struct ConvConfig : ConvOptions<N> {
  using Given = ConvOptions<N>;
  int64_t filters = 0;
  Sizes<N> kernel_size = 1;
  static void fields(auto& c, auto&& f) {
    f.required("filters", c.filters);
    f.required("kernel_size", c.kernel_size);
    internal::convolution_fields(c, f);
    f("groups", c.groups);
    f("kernel_initializer", c.kernel_initializer);
    f("kernel_regularizer", c.kernel_regularizer);
    f("kernel_constraint", c.kernel_constraint);
    f.newer("lora_rank", nullptr);
    f.newer("lora_alpha", nullptr);
  }
};

/// Of convolutions over N axes, see core.h.
template <int N>
class ConvLayer : public LayerImpl<ConvConfig<N>> {
 public:
  explicit ConvLayer(ConvConfig<N> config);
  ~ConvLayer() override;
  void build(const Shape& input_shape) override;
  Shape compute_output_shape(const Shape& input_shape) const override;
  Tensor call(const Tensor& input, const CallArgs&) override;

 private:
  std::unique_ptr<internal::ConvolutionPlan> plan_;
  Variable kernel_, bias_;
};

struct Conv1DLayer : ConvLayer<1> {
  using ConvLayer<1>::ConvLayer;
};
struct Conv2DLayer : ConvLayer<2> {
  using ConvLayer<2>::ConvLayer;
};
struct Conv3DLayer : ConvLayer<3> {
  using ConvLayer<3>::ConvLayer;
};

/// Conv2D(filters, kernel_size, options).
/// Shapes: [b, h, w, in] to [b, h', w', filters]; kernel [kh, kw, in / groups, filters].
/// Errors: InvalidArgument for strides together with dilation, for channels that the groups do not
///         divide, and for windows larger than the input. TF: keras.layers.Conv2D.
/// Cost: float32 with filters a multiple of 16 and one group, on one intra-op thread, runs Cohort's
///       kernels (not Conv3D), anything else LibTorch's convolution, which serves several threads.
using Conv1D = internal::FiltersHandle<Conv1DLayer>;
using Conv2D = internal::FiltersHandle<Conv2DLayer>;
using Conv3D = internal::FiltersHandle<Conv3DLayer>;

template <int N>
struct ConvTransposeOptions {
  Sizes<N> strides = 1;
  std::string padding = "valid";  ///< Or "same": size * stride outputs.
  /// Unset: outputs as the padding says. Set, below the strides: (size - 1) * stride + k + this,
  /// with k the kernel's extent for "valid", and the extent modulo 2 for "same".
  std::optional<Sizes<N>> output_padding = {};
  std::string data_format = "channels_last";
  Sizes<N> dilation_rate = 1;
  ActivationFunction activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};
using Conv1DTransposeOptions = ConvTransposeOptions<1>;
using Conv2DTransposeOptions = ConvTransposeOptions<2>;
using Conv3DTransposeOptions = ConvTransposeOptions<3>;

template <int N>
struct ConvTransposeConfig : ConvTransposeOptions<N> {
  using Given = ConvTransposeOptions<N>;
  int64_t filters = 0;
  Sizes<N> kernel_size = 1;
  static void fields(auto& c, auto&& f) {
    f.required("filters", c.filters);
    f.required("kernel_size", c.kernel_size);
    internal::convolution_fields(c, f);
    f("output_padding", c.output_padding);
    f("kernel_initializer", c.kernel_initializer);
    f("kernel_regularizer", c.kernel_regularizer);
    f("kernel_constraint", c.kernel_constraint);
  }
};

template <int N>
class ConvTransposeLayer : public LayerImpl<ConvTransposeConfig<N>> {
 public:
  explicit ConvTransposeLayer(ConvTransposeConfig<N> config);
  ~ConvTransposeLayer() override;
  void build(const Shape& input_shape) override;
  Shape compute_output_shape(const Shape& input_shape) const override;
  Tensor call(const Tensor& input, const CallArgs&) override;

 private:
  int64_t outputs(std::size_t axis, int64_t n) const;

  std::unique_ptr<internal::ConvolutionPlan> plan_;
  Variable kernel_, bias_;
};

struct Conv1DTransposeLayer : ConvTransposeLayer<1> {
  using ConvTransposeLayer<1>::ConvTransposeLayer;
};
struct Conv2DTransposeLayer : ConvTransposeLayer<2> {
  using ConvTransposeLayer<2>::ConvTransposeLayer;
};
struct Conv3DTransposeLayer : ConvTransposeLayer<3> {
  using ConvTransposeLayer<3>::ConvTransposeLayer;
};

/// What gives the gradient of a convolution: each input is spread over a window of outputs.
/// Shapes: [b, h, w, in] to [b, h', w', filters]; kernel [kh, kw, filters, in].
/// Errors: InvalidArgument as Conv2D, and for output_padding that is not below the strides.
using Conv1DTranspose = internal::FiltersHandle<Conv1DTransposeLayer>;
using Conv2DTranspose = internal::FiltersHandle<Conv2DTransposeLayer>;
using Conv3DTranspose = internal::FiltersHandle<Conv3DTransposeLayer>;

template <int N>
struct DepthwiseConvOptions {
  Sizes<N> strides = 1;
  std::string padding = "valid";
  int64_t depth_multiplier = 1;  ///< Outputs of each channel.
  std::string data_format = "channels_last";
  Sizes<N> dilation_rate = 1;
  ActivationFunction activation = {};
  bool use_bias = true;
  Initializer depthwise_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer depthwise_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint depthwise_constraint = {};
  Constraint bias_constraint = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};
using DepthwiseConv1DOptions = DepthwiseConvOptions<1>;
using DepthwiseConv2DOptions = DepthwiseConvOptions<2>;

template <int N>
struct DepthwiseConvConfig : DepthwiseConvOptions<N> {
  Sizes<N> kernel_size = 1;
  static void fields(auto& c, auto&& f) {
    f.required("kernel_size", c.kernel_size);
    internal::convolution_fields(c, f);
    f("depth_multiplier", c.depth_multiplier);
    f("depthwise_initializer", c.depthwise_initializer);
    f("depthwise_regularizer", c.depthwise_regularizer);
    f("depthwise_constraint", c.depthwise_constraint);
  }
};

template <int N>
class DepthwiseConvLayer : public LayerImpl<DepthwiseConvConfig<N>> {
 public:
  explicit DepthwiseConvLayer(DepthwiseConvConfig<N> config);
  ~DepthwiseConvLayer() override;
  void build(const Shape& input_shape) override;
  Shape compute_output_shape(const Shape& input_shape) const override;
  Tensor call(const Tensor& input, const CallArgs&) override;

 private:
  std::unique_ptr<internal::ConvolutionPlan> plan_;
  Variable kernel_, bias_;
};

struct DepthwiseConv1DLayer : DepthwiseConvLayer<1> {
  using DepthwiseConvLayer<1>::DepthwiseConvLayer;
};
struct DepthwiseConv2DLayer : DepthwiseConvLayer<2> {
  using DepthwiseConvLayer<2>::DepthwiseConvLayer;
};

namespace internal {
template <class L>
class DepthwiseHandle : public Layer {
 public:
  using Size = decltype(L::Options::kernel_size);
  explicit DepthwiseHandle(Size kernel_size, DepthwiseConvOptions<Size::kAxes> options = {})
      : Layer(
            std::make_shared<L>(typename L::Options{std::move(options), std::move(kernel_size)})) {}
};
}  // namespace internal

/// Each channel by itself.
/// Shapes: [b, h, w, in] to [b, h', w', in * depth_multiplier], the outputs of a channel side by
///         side; kernel [kh, kw, in, depth_multiplier].
using DepthwiseConv1D = internal::DepthwiseHandle<DepthwiseConv1DLayer>;
using DepthwiseConv2D = internal::DepthwiseHandle<DepthwiseConv2DLayer>;

template <int N>
struct SeparableConvOptions {
  Sizes<N> strides = 1;
  std::string padding = "valid";
  std::string data_format = "channels_last";
  Sizes<N> dilation_rate = 1;
  int64_t depth_multiplier = 1;
  ActivationFunction activation = {};
  bool use_bias = true;
  Initializer depthwise_initializer = "glorot_uniform";
  Initializer pointwise_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer depthwise_regularizer = {};
  Regularizer pointwise_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint depthwise_constraint = {};
  Constraint pointwise_constraint = {};
  Constraint bias_constraint = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};
using SeparableConv1DOptions = SeparableConvOptions<1>;
using SeparableConv2DOptions = SeparableConvOptions<2>;

template <int N>
struct SeparableConvConfig : SeparableConvOptions<N> {
  using Given = SeparableConvOptions<N>;
  int64_t filters = 0;
  Sizes<N> kernel_size = 1;
  static void fields(auto& c, auto&& f) {
    f.required("filters", c.filters);
    f.required("kernel_size", c.kernel_size);
    internal::convolution_fields(c, f);
    f("depth_multiplier", c.depth_multiplier);
    f("depthwise_initializer", c.depthwise_initializer);
    f("pointwise_initializer", c.pointwise_initializer);
    f("depthwise_regularizer", c.depthwise_regularizer);
    f("pointwise_regularizer", c.pointwise_regularizer);
    f("depthwise_constraint", c.depthwise_constraint);
    f("pointwise_constraint", c.pointwise_constraint);
  }
};

template <int N>
class SeparableConvLayer : public LayerImpl<SeparableConvConfig<N>> {
 public:
  explicit SeparableConvLayer(SeparableConvConfig<N> config);
  ~SeparableConvLayer() override;
  void build(const Shape& input_shape) override;
  Shape compute_output_shape(const Shape& input_shape) const override;
  Tensor call(const Tensor& input, const CallArgs&) override;

 private:
  std::unique_ptr<internal::ConvolutionPlan> plan_;
  Variable depthwise_kernel_, pointwise_kernel_, bias_;
};

struct SeparableConv1DLayer : SeparableConvLayer<1> {
  using SeparableConvLayer<1>::SeparableConvLayer;
};
struct SeparableConv2DLayer : SeparableConvLayer<2> {
  using SeparableConvLayer<2>::SeparableConvLayer;
};

/// A depthwise convolution, and then one of 1 x 1 that mixes the channels.
/// Shapes: [b, h, w, in] to [b, h', w', filters]; kernels [kh, kw, in, depth_multiplier] and
///         [1, 1, in * depth_multiplier, filters].
using SeparableConv1D = internal::FiltersHandle<SeparableConv1DLayer>;
using SeparableConv2D = internal::FiltersHandle<SeparableConv2DLayer>;

}  // namespace cohort::keras
