// SPDX-License-Identifier: Apache-2.0
//
// Transposed, depthwise and separable convolutions, in operations of LibTorch.
#include <ATen/ops/convolution.h>

#include <algorithm>
#include <array>

#include "cohort/keras/layers/convolution.h"
#include "cohort/keras/layers/internal/convolution_plan.h"
#include "cohort/keras/layers/internal/kernel_and_bias.h"

namespace cohort::keras {
namespace {

using internal::Window;

// Keras's [k..., in, multiplier] as LibTorch's [in * multiplier, 1, k...].
Tensor depthwise_view(const Tensor& kernel) {
  const Tensor channels = kernel.movedim({-2, -1}, {0, 1});
  return channels.flatten(0, 1).unsqueeze(1);
}

}  // namespace

template <int N>
ConvTransposeLayer<N>::ConvTransposeLayer(ConvTransposeConfig<N> config)
    : LayerImpl<ConvTransposeConfig<N>>(std::move(config)) {
  const ConvTransposeConfig<N>& o = this->config();
  plan_ = internal::make_plan<N>(str_cat("conv", N, "d_transpose"), o, false);
  plan_->check_positive("filters", o.filters);
  for (std::size_t i = 0; o.output_padding && i < N; ++i) {
    const int64_t more = (*o.output_padding)[i];
    COHORT_CHECK_ARG(more >= 0 && more < o.strides[i], "[", plan_->who,
                     "] expected output_padding below the strides, got ", *o.output_padding,
                     " and ", o.strides);
  }
}

template <int N>
ConvTransposeLayer<N>::~ConvTransposeLayer() = default;

// As TensorFlow: its "same" counts whole strides, or half a window less than all there is.
template <int N>
int64_t ConvTransposeLayer<N>::outputs(std::size_t axis, int64_t n) const {
  if (n == kUnknownDim) return kUnknownDim;
  const Window& w = plan_->convolution.window[static_cast<int>(axis)];
  const auto& more = this->config().output_padding;
  if (w.padding == internal::Padding::kSame) {
    return more ? (n - 1) * w.stride + w.extent() % 2 + (*more)[axis] : n * w.stride;
  }
  return (n - 1) * w.stride + (more ? w.extent() + (*more)[axis] : std::max(w.extent(), w.stride));
}

template <int N>
Shape ConvTransposeLayer<N>::compute_output_shape(const Shape& input_shape) const {
  const internal::DataLayout layout(this->name(), input_shape, N, plan_->channels_first);
  Shape out = input_shape;
  out[layout.channels] = this->config().filters;
  for (std::size_t i = 0; i < N; ++i) {
    out[layout.first + i] = outputs(i, input_shape[layout.first + i]);
  }
  return out;
}

template <int N>
void ConvTransposeLayer<N>::build(const Shape& input_shape) {
  const ConvTransposeConfig<N>& o = this->config();
  const int64_t channels = plan_->channels_in(this->name(), input_shape);
  kernel_ = this->add_weight(
      internal::kernel_options(o, internal::kernel_shape(o.kernel_size, o.filters, channels)));
  if (o.use_bias) bias_ = this->add_weight(internal::bias_options(o, {o.filters}));
  this->set_input_spec(plan_->input_spec(channels));
}

// All that the windows reach, without the zeros that the convolution of the outputs would have
// around: half of them in front, as "same" counts, and as many outputs as there should be.
template <int N>
Tensor ConvTransposeLayer<N>::call(const Tensor& input, const CallArgs&) {
  const internal::Convolution& c = plan_->convolution;
  const Tensor kernel = kernel_.value();
  return internal::in_channels_last(*plan_, input, kernel.scalar_type(), [&](const Tensor& x) {
    std::array<int64_t, N> cut, more, sizes;
    for (std::size_t i = 0; i < N; ++i) {
      const Window& w = c.window[static_cast<int>(i)];
      const int64_t n = x.size(static_cast<int64_t>(i) + 1);
      const int64_t all = (n - 1) * w.stride + w.extent();
      sizes[i] = outputs(i, n);
      cut[i] = std::max<int64_t>(0, all - sizes[i]) / 2;
      more[i] = std::max<int64_t>(0, sizes[i] - (all - 2 * cut[i]));
    }
    Tensor y = at::convolution(internal::to_channels_first(x), internal::kernel_view(kernel),
                               internal::value_or_none(bias_), c.stride(), cut, c.dilation(), true,
                               more, 1);
    for (std::size_t i = 0; i < N; ++i) {
      const auto axis = static_cast<int64_t>(i) + 2;
      if (y.size(axis) != sizes[i]) y = y.narrow(axis, 0, sizes[i]);
    }
    return this->config().activation(internal::to_channels_last(y));
  });
}

template <int N>
DepthwiseConvLayer<N>::DepthwiseConvLayer(DepthwiseConvConfig<N> config)
    : LayerImpl<DepthwiseConvConfig<N>>(std::move(config)) {
  plan_ = internal::make_plan<N>(str_cat("depthwise_conv", N, "d"), this->config(), false);
  plan_->check_positive("depth_multiplier", this->config().depth_multiplier);
}

template <int N>
DepthwiseConvLayer<N>::~DepthwiseConvLayer() = default;

template <int N>
Shape DepthwiseConvLayer<N>::compute_output_shape(const Shape& input_shape) const {
  const internal::DataLayout layout(this->name(), input_shape, N, plan_->channels_first);
  const int64_t channels = input_shape[layout.channels] * this->config().depth_multiplier;
  return plan_->output_shape(this->name(), input_shape, channels);
}

template <int N>
void DepthwiseConvLayer<N>::build(const Shape& input_shape) {
  const DepthwiseConvConfig<N>& o = this->config();
  const int64_t channels = plan_->channels_in(this->name(), input_shape);
  compute_output_shape(input_shape);
  kernel_ = this->add_weight(
      {.name = "kernel",
       .shape = internal::kernel_shape(o.kernel_size, channels, o.depth_multiplier),
       .dtype = o.dtype.variable_dtype(),
       .initializer = o.depthwise_initializer,
       .regularizer = o.depthwise_regularizer,
       .constraint = o.depthwise_constraint});
  if (o.use_bias)
    bias_ = this->add_weight(internal::bias_options(o, {channels * o.depth_multiplier}));
  this->set_input_spec(plan_->input_spec(channels));
}

template <int N>
Tensor DepthwiseConvLayer<N>::call(const Tensor& input, const CallArgs&) {
  compute_output_shape(shape_of(input));
  const Tensor kernel = depthwise_view(kernel_.value());
  return internal::in_channels_last(*plan_, input, kernel.scalar_type(), [&](const Tensor& x) {
    return this->config().activation(internal::plain_convolution(
        plan_->convolution, x, kernel, internal::value_or_none(bias_), x.size(-1)));
  });
}

template <int N>
SeparableConvLayer<N>::SeparableConvLayer(SeparableConvConfig<N> config)
    : LayerImpl<SeparableConvConfig<N>>(std::move(config)) {
  const SeparableConvConfig<N>& o = this->config();
  plan_ = internal::make_plan<N>(str_cat("separable_conv", N, "d"), o, false);
  plan_->check_positive("filters", o.filters);
  plan_->check_positive("depth_multiplier", o.depth_multiplier);
}

template <int N>
SeparableConvLayer<N>::~SeparableConvLayer() = default;

template <int N>
Shape SeparableConvLayer<N>::compute_output_shape(const Shape& input_shape) const {
  return plan_->output_shape(this->name(), input_shape, this->config().filters);
}

template <int N>
void SeparableConvLayer<N>::build(const Shape& input_shape) {
  const SeparableConvConfig<N>& o = this->config();
  const int64_t channels = plan_->channels_in(this->name(), input_shape);
  compute_output_shape(input_shape);
  depthwise_kernel_ = this->add_weight(
      {.name = "depthwise_kernel",
       .shape = internal::kernel_shape(o.kernel_size, channels, o.depth_multiplier),
       .dtype = o.dtype.variable_dtype(),
       .initializer = o.depthwise_initializer,
       .regularizer = o.depthwise_regularizer,
       .constraint = o.depthwise_constraint});
  pointwise_kernel_ = this->add_weight(
      {.name = "pointwise_kernel",
       .shape = internal::kernel_shape(Sizes<N>(1), channels * o.depth_multiplier, o.filters),
       .dtype = o.dtype.variable_dtype(),
       .initializer = o.pointwise_initializer,
       .regularizer = o.pointwise_regularizer,
       .constraint = o.pointwise_constraint});
  if (o.use_bias) bias_ = this->add_weight(internal::bias_options(o, {o.filters}));
  this->set_input_spec(plan_->input_spec(channels));
}

template <int N>
Tensor SeparableConvLayer<N>::call(const Tensor& input, const CallArgs&) {
  compute_output_shape(shape_of(input));
  const Tensor kernel = depthwise_view(depthwise_kernel_.value());
  return internal::in_channels_last(*plan_, input, kernel.scalar_type(), [&](const Tensor& x) {
    const Tensor each = internal::plain_convolution(plan_->convolution, x, kernel, {}, x.size(-1));
    // A window of 1 x 1 is a product.
    Tensor y = each.matmul(pointwise_kernel_.value().flatten(0, -2));
    if (bias_) y = y + bias_.value();
    return this->config().activation(y);
  });
}

template class ConvTransposeLayer<1>;
template class ConvTransposeLayer<2>;
template class ConvTransposeLayer<3>;
template class DepthwiseConvLayer<1>;
template class DepthwiseConvLayer<2>;
template class SeparableConvLayer<1>;
template class SeparableConvLayer<2>;

}  // namespace cohort::keras
