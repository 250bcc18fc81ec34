// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/convolution.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/threshold_backward.h>

#include <algorithm>
#include <array>

#include "cohort/autograd/layer_node.h"
#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/convolution_kernels.h"
#include "cohort/keras/layers/internal/convolution_plan.h"
#include "cohort/keras/layers/internal/kept_value.h"
#include "cohort/keras/layers/internal/kernel_and_bias.h"
#include "cohort/keras/layers/internal/kernels.h"

namespace cohort::keras {

namespace {

using cohort::internal::autograd::BelowAutograd;
using cohort::internal::autograd::LayerNode;
using cohort::internal::autograd::SavedVariable;
using cohort::internal::autograd::variable_list;
using internal::Convolution;
using internal::kept_value;
using internal::kernel_view;
using internal::kernels;

// A gradient for kernel_view as one for the kernel.
Tensor gradient_view(const Tensor& gradient) { return gradient.movedim({0, 1}, {-1, -2}); }

// A series is an image of one row: this is its kernel.
Tensor lifted(const Tensor& kernel) { return kernel.dim() == 3 ? kernel.unsqueeze(0) : kernel; }

// Any dtype, device and number of groups, recorded where recording is on; x is padded.
Tensor any_forward(const Convolution& c, const Tensor& x, const Tensor& kernel,
                   const Tensor& bias) {
  const Tensor y = at::convolution(internal::to_channels_first(x), kernel_view(kernel), bias,
                                   c.stride(), c.none(), c.dilation(), false, c.none(), c.groups);
  return internal::to_channels_last(y);
}

// On a device: its library pads evenly without a copy, and keeps channels last.
struct DevicePadding {
  DevicePadding(const Convolution& c, const Tensor& input) : even(true) {
    for (int axis = 0; axis < c.window.rank(); ++axis) {
      const auto [before, after] = c.window[axis].around(input.size(axis + 1));
      even = even && before == after;
      each.push_back(before);
    }
    if (!even) each = c.none();
  }
  Tensor padded(const Convolution& c, const Tensor& input) const {
    return (even ? input : c.window.pad(input, 0)).contiguous();
  }
  bool even;  // padded() pads nothing
  at::DimVector each;
};

Tensor device_forward(const Convolution& c, const Tensor& input, const Tensor& kernel,
                      const Tensor& bias) {
  const DevicePadding padding(c, input);
  const Tensor x = internal::to_channels_first(padding.padded(c, input));
  const Tensor y = at::convolution(x, kernel_view(kernel), bias, c.stride(), padding.each,
                                   c.dilation(), false, c.none(), c.groups);
  Tensor out = internal::to_channels_last(y).contiguous();
  if (c.relu) out.clamp_min_(0);
  return out;
}

std::tuple<Tensor, Tensor> device_backward(const Convolution& c, const Tensor& g,
                                           const Tensor& input, const Tensor& kernel, bool wants_x,
                                           bool wants_kernel) {
  if (!wants_x && !wants_kernel) return {};
  const DevicePadding padding(c, input);
  const Tensor x = internal::to_channels_first(padding.padded(c, input));
  auto [dx, dw, db] = at::convolution_backward(
      internal::to_channels_first(g), x, kernel_view(kernel), {}, c.stride(), padding.each,
      c.dilation(), false, c.none(), c.groups, {wants_x, wants_kernel, false});
  if (dx.defined()) {
    dx = internal::to_channels_last(dx);
    dx = (padding.even ? dx : c.window.crop(dx, input)).contiguous();
  }
  if (dw.defined()) dw = gradient_view(dw);
  return {dx, dw};
}

std::tuple<Tensor, Tensor> any_backward(const Convolution& c, const Tensor& g, const Tensor& x,
                                        const Tensor& kernel, bool wants_x, bool wants_kernel) {
  auto [dx, dw, db] =
      at::convolution_backward(internal::to_channels_first(g), internal::to_channels_first(x),
                               kernel_view(kernel), {}, c.stride(), c.none(), c.dilation(), false,
                               c.none(), c.groups, {wants_x, wants_kernel, false});
  if (dx.defined()) dx = internal::to_channels_last(dx);
  if (dw.defined()) dw = gradient_view(dw);
  return {dx, dw};
}

// Below autograd, contiguous, fresh.
Tensor forward(const Convolution& c, const Tensor& input, const Tensor& kernel,
               const Tensor& bias) {
  const BelowAutograd below;
  if (internal::has_own_convolution(input, kernel, c.groups)) {
    return internal::own_forward(c.window, input.contiguous(), kernel, bias, c.relu);
  }
  if (!input.is_cpu()) return device_forward(c, input, kernel, bias);
  const Tensor x = c.window.pad(input, 0).contiguous();
  Tensor y = any_forward(c, x, kernel, bias).contiguous();
  if (c.relu) y.clamp_min_(0);
  return y;
}

class ConvolutionNode final : public LayerNode {
 public:
  /// `cast`: the kernel in the type of x, where that is another one than it is kept in.
  ConvolutionNode(const Convolution& c, const Tensor& x, const Variable& kernel,
                  const Variable& bias, Tensor cast)
      : convolution_(c),
        x_(x, false),
        kernel_(cast.defined() ? kept_value(kernel) : kernel.value(), false),
        cast_(std::move(cast)),
        has_bias_(bool(bias)),
        is_series_(kernel.shape().size() == 3) {
    add_input(x);
    add_weight(kernel);
    add_weight(bias);
  }
  void save_output(const Tensor& y) {
    if (convolution_.relu) y_ = SavedVariable(y, true);
  }
  void release_variables() override {
    x_.reset_data();
    kernel_.reset_data();
    cast_.reset();
    y_.reset_data();
  }

 protected:
  variable_list backward(variable_list&& gradients) override;
  variable_list differentiable_backward(variable_list&& gradients) override;

 private:
  Tensor saved_output() { return y_.unpack(cohort::internal::runtime::owner_of<Node>(this)); }
  void own_backward(const Tensor& g, const Tensor& y, const Tensor& x, const Tensor& kernel,
                    variable_list& out);
  void backward_on_device(Tensor g, const Tensor& y, const Tensor& input, const Tensor& kernel,
                          variable_list& out);

  const Convolution convolution_;
  SavedVariable x_, kernel_, y_;
  Tensor cast_;
  const bool has_bias_, is_series_;
};

// The mask of the activation, the sum for the bias and both products run image by image, so that
// an image stays in the cache between them.
void ConvolutionNode::own_backward(const Tensor& g, const Tensor& y, const Tensor& x,
                                   const Tensor& kernel, variable_list& out) {
  internal::OwnBackward pass{
      .window = convolution_.window, .g = g, .y = y, .x = x, .kernel = kernel};
  if (wants_input(0)) pass.dx = out[0] = at::empty(x.sizes(), x.options());
  const auto run = [&] { internal::own_backward(pass); };
  const auto with_kernel = [&] {
    if (!wants_weight(0)) return run();
    out[1] = weight_gradient(0, [&](Tensor& dw, bool accumulate) {
      pass.kernel_gradient = lifted(dw);
      pass.accumulate_kernel = accumulate;
      run();
    });
  };
  if (!has_bias_ || !wants_weight(1)) return with_kernel();
  out[2] = weight_gradient(1, [&](Tensor& db, bool accumulate) {
    pass.bias_gradient = db;
    pass.accumulate_bias = accumulate;
    with_kernel();
  });
}

void ConvolutionNode::backward_on_device(Tensor g, const Tensor& y, const Tensor& input,
                                         const Tensor& kernel, variable_list& out) {
  if (y.defined()) g = at::threshold_backward(g, y, 0);
  auto [dx, dw] = device_backward(convolution_, g, input, kernel, wants_input(0), wants_weight(0));
  out[0] = std::move(dx);
  if (wants_weight(0)) {
    const Tensor computed = dw;
    out[1] = weight_gradient(0, [&](Tensor& slot, bool accumulate) {
      accumulate ? lifted(slot).add_(computed) : lifted(slot).copy_(computed);
    });
  }
  if (!has_bias_ || !wants_weight(1)) return;
  out[2] = weight_gradient(1, [&](Tensor& slot, bool accumulate) {
    if (accumulate) {
      slot.add_(g.sum({0, 1, 2}, false, slot.scalar_type()));
    } else {
      at::sum_out(slot, g, {0, 1, 2}, false, slot.scalar_type());
    }
  });
}

variable_list ConvolutionNode::backward(variable_list&& gradients) {
  variable_list out(3);
  if (!gradients[0].defined()) return out;
  const Tensor input = x_.unpack();
  const Tensor kept = kernel_.unpack();
  const Tensor kernel = lifted(cast_.defined() ? cast_ : kept);
  const Tensor y = convolution_.relu ? saved_output() : Tensor();
  Tensor g = gradients[0].contiguous();
  if (internal::has_own_convolution(input, kernel, convolution_.groups)) {
    own_backward(g, y, input.contiguous(), kernel, out);
  } else if (!g.is_cpu()) {
    backward_on_device(g, y, input, kernel, out);
  } else {
    const Tensor x = convolution_.window.pad(input, 0).contiguous();
    if (y.defined()) g = g.mul(y.gt(0));
    auto [dx, dw] = any_backward(convolution_, g, x, kernel, wants_input(0), wants_weight(0));
    if (dx.defined()) out[0] = convolution_.window.crop(dx, input).contiguous();
    if (wants_weight(0)) {
      const Tensor computed = dw;
      out[1] = weight_gradient(0, [&](Tensor& slot, bool accumulate) {
        accumulate ? lifted(slot).add_(computed) : lifted(slot).copy_(computed);
      });
    }
    if (has_bias_ && wants_weight(1)) {
      out[2] = weight_gradient(1, [&](Tensor& slot, bool accumulate) {
        const Tensor sum = g.sum({0, 1, 2});
        accumulate ? slot.add_(sum) : slot.copy_(sum);
      });
    }
  }
  return out;
}

variable_list ConvolutionNode::differentiable_backward(variable_list&& gradients) {
  variable_list out(3);
  if (!gradients[0].defined()) return out;
  const Tensor input = x_.unpack();
  Tensor g = gradients[0];
  if (convolution_.relu) g = g.mul(saved_output().detach().gt(0));
  const Tensor x = convolution_.window.pad(input, 0);
  const Tensor kept = kernel_.unpack();
  const DType type = kept.scalar_type();
  auto [dx, dw] = any_backward(convolution_, g, x, lifted(kept.to(x.scalar_type())), wants_input(0),
                               wants_weight(0));
  if (wants_input(0)) out[0] = convolution_.window.crop(dx, input);
  if (wants_weight(0)) out[1] = (is_series_ ? dw.squeeze(0) : dw).to(type);
  if (has_bias_ && wants_weight(1)) out[2] = g.sum({0, 1, 2}).to(type);
  return out;
}

// Through the node, which has kernels of its own; c is of images. Where weights are kept in another
// type than that of the input, they are cast once.
Tensor node_forward(const Convolution& c, const Tensor& input, const Variable& kernel,
                    const Variable& bias) {
  const bool is_series = input.dim() == 3;
  const Tensor x = is_series ? input.unsqueeze(1) : input;
  const DType type = x.scalar_type();
  Tensor y, cast;
  if (type == kernel.dtype()) {
    y = forward(c, x, lifted(kernel.value()), bias ? bias.value() : Tensor());
  } else {
    const BelowAutograd below;
    cast = kept_value(kernel).to(type);
    y = forward(c, x, lifted(cast), bias ? kept_value(bias).to(type) : Tensor());
  }
  if (cohort::internal::autograd::needs_node({&x}, {&kernel, &bias})) {
    auto node = cohort::internal::runtime::make_node<ConvolutionNode>(c, x, kernel, bias, cast);
    cohort::internal::autograd::attach(y, node);
    node->save_output(y);
  }
  return is_series ? y.squeeze(1) : y;
}

}  // namespace

template <int N>
ConvLayer<N>::ConvLayer(ConvConfig<N> config) : LayerImpl<ConvConfig<N>>(std::move(config)) {
  const ConvConfig<N>& o = this->config();
  plan_ = internal::make_plan<N>(str_cat("conv", N, "d"), o, true);
  plan_->check_positive("filters", o.filters);
  COHORT_CHECK_ARG(o.groups > 0 && o.filters % o.groups == 0, "[", plan_->who,
                   "] expected groups that divide the ", o.filters, " filters, got ", o.groups);
  for (internal::Convolution* c : {&plan_->convolution, &plan_->image}) {
    c->groups = o.groups;
    c->relu = N < 3 && o.activation.is_relu();
  }
}

template <int N>
ConvLayer<N>::~ConvLayer() = default;

template <int N>
Shape ConvLayer<N>::compute_output_shape(const Shape& input_shape) const {
  return plan_->output_shape(this->name(), input_shape, this->config().filters);
}

template <int N>
void ConvLayer<N>::build(const Shape& input_shape) {
  const ConvConfig<N>& o = this->config();
  const int64_t channels = plan_->channels_in(this->name(), input_shape);
  COHORT_CHECK_ARG(channels % o.groups == 0, "[", this->name(), "] expected channels that ",
                   o.groups, " groups divide, got ", channels);
  compute_output_shape(input_shape);
  kernel_ = this->add_weight(internal::kernel_options(
      o, internal::kernel_shape(o.kernel_size, channels / o.groups, o.filters)));
  if (o.use_bias) bias_ = this->add_weight(internal::bias_options(o, {o.filters}));
  this->set_input_spec(plan_->input_spec(channels));
}

template <int N>
Tensor ConvLayer<N>::call(const Tensor& input, const CallArgs&) {
  compute_output_shape(shape_of(input));
  const auto by_node = [&](const Tensor& x) {
    const Tensor y = node_forward(plan_->image, x, kernel_, bias_);
    return plan_->image.relu ? y : this->config().activation(y);
  };
  const DTypePolicy& policy = this->config().dtype;
  if (N < 3 && !input.is_cpu()) {
    const DType type = policy.is_mixed() ? policy.compute_dtype() : kernel_.dtype();
    return internal::in_channels_last(*plan_, input, type, by_node);
  }
  const Tensor kernel = kernel_.value();
  // The node reads the weights as they are kept, which mixed precision does not.
  const bool fits_node = N < 3 && kernel.scalar_type() == kernel_.dtype();
  return internal::in_channels_last(*plan_, input, kernel.scalar_type(), [&](const Tensor& x) {
    if (fits_node) return by_node(x);
    return this->config().activation(
        internal::plain_convolution(plan_->convolution, x, internal::kernel_view(kernel),
                                    internal::value_or_none(bias_), this->config().groups));
  });
}

template class ConvLayer<1>;
template class ConvLayer<2>;
template class ConvLayer<3>;

}  // namespace cohort::keras
