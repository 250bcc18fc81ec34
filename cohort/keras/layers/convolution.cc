// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/convolution.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>

#include "cohort/autograd/layer_node.h"
#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/convolution_kernels.h"
#include "cohort/keras/layers/internal/kernels.h"
#include "cohort/keras/layers/internal/windows.h"

namespace cohort::keras {

/// What call() needs, as the kernels see it.
struct internal::ConvolutionPlan {
  Window2D window;
  int64_t groups = 1;
  bool relu = false;

  std::array<int64_t, 2> stride() const { return {window.rows.stride, window.columns.stride}; }
  std::array<int64_t, 2> dilation() const {
    return {window.rows.dilation, window.columns.dilation};
  }
};

namespace {

using Convolution = internal::ConvolutionPlan;
using cohort::internal::BelowAutograd;
using cohort::internal::LayerNode;
using cohort::internal::SavedVariable;
using cohort::internal::variable_list;
using internal::kernels;
using internal::Window2D;

std::string text_of(Size2D size) {
  return size.height == size.width ? str_cat(size.height)
                                   : str_cat("(", size.height, ", ", size.width, ")");
}

// Keras's [kh, kw, in, out] as LibTorch's [out, in, kh, kw], the same memory; and back.
Tensor kernel_view(const Tensor& kernel) { return kernel.permute({3, 2, 0, 1}); }
Tensor kernel_shape(const Tensor& gradient) { return gradient.permute({2, 3, 1, 0}); }

// Any dtype, device and number of groups, recorded where recording is on; x is padded.
Tensor any_forward(const Convolution& c, const Tensor& x, const Tensor& kernel,
                   const Tensor& bias) {
  const Tensor y = at::convolution(internal::to_channels_first(x), kernel_view(kernel), bias,
                                   c.stride(), {0, 0}, c.dilation(), false, {0, 0}, c.groups);
  return internal::to_channels_last(y);
}

std::tuple<Tensor, Tensor> any_backward(const Convolution& c, const Tensor& g, const Tensor& x,
                                        const Tensor& kernel, bool wants_x, bool wants_kernel) {
  auto [dx, dw, db] = at::convolution_backward(
      internal::to_channels_first(g), internal::to_channels_first(x), kernel_view(kernel), {},
      c.stride(), {0, 0}, c.dilation(), false, {0, 0}, c.groups, {wants_x, wants_kernel, false});
  if (dx.defined()) dx = internal::to_channels_last(dx);
  if (dw.defined()) dw = kernel_shape(dw);
  return {dx, dw};
}

// Below autograd, contiguous, fresh.
Tensor forward(const Convolution& c, const Tensor& input, const Tensor& kernel,
               const Tensor& bias) {
  const BelowAutograd below;
  const Tensor x = c.window.pad(input, 0).contiguous();
  if (internal::has_own_convolution(x, kernel, c.groups)) {
    return internal::own_forward(c.window, x, kernel, bias, c.relu);
  }
  Tensor y = any_forward(c, x, kernel, bias).contiguous();
  if (c.relu) y.clamp_min_(0);
  return y;
}

class ConvolutionNode final : public LayerNode {
 public:
  ConvolutionNode(const Convolution& c, const Tensor& x, const Variable& kernel,
                  const Variable& bias)
      : convolution_(c), x_(x, false), kernel_(kernel.value(), false), has_bias_(bool(bias)) {
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
    y_.reset_data();
  }

 protected:
  variable_list backward(variable_list&& gradients) override;
  variable_list differentiable_backward(variable_list&& gradients) override;

 private:
  Tensor saved_output() { return y_.unpack(cohort::internal::owner_of<Node>(this)); }
  void own_backward(const Tensor& g, const Tensor& y, const Tensor& x, const Tensor& kernel,
                    variable_list& out);

  const Convolution convolution_;
  SavedVariable x_, kernel_, y_;
  const bool has_bias_;
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
      pass.kernel_gradient = dw;
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

variable_list ConvolutionNode::backward(variable_list&& gradients) {
  variable_list out(3);
  if (!gradients[0].defined()) return out;
  const Tensor input = x_.unpack();
  const Tensor kernel = kernel_.unpack();
  const Tensor y = convolution_.relu ? saved_output() : Tensor();
  const Tensor x = convolution_.window.pad(input, 0).contiguous();
  Tensor g = gradients[0].contiguous();
  if (internal::has_own_convolution(x, kernel, convolution_.groups)) {
    own_backward(g, y, x, kernel, out);
  } else {
    if (y.defined()) g = g.mul(y.gt(0));
    auto [dx, dw] = any_backward(convolution_, g, x, kernel, wants_input(0), wants_weight(0));
    out[0] = dx;
    if (wants_weight(0)) {
      const Tensor computed = dw;
      out[1] = weight_gradient(0, [&](Tensor& slot, bool accumulate) {
        accumulate ? slot.add_(computed) : slot.copy_(computed);
      });
    }
    if (has_bias_ && wants_weight(1)) {
      out[2] = weight_gradient(1, [&](Tensor& slot, bool accumulate) {
        const Tensor sum = g.sum({0, 1, 2});
        accumulate ? slot.add_(sum) : slot.copy_(sum);
      });
    }
  }
  if (out[0].defined()) {
    out[0] = convolution_.window.crop(out[0], input.size(1), input.size(2)).contiguous();
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
  auto [dx, dw] =
      any_backward(convolution_, g, x, kernel_.unpack(), wants_input(0), wants_weight(0));
  if (wants_input(0)) out[0] = convolution_.window.crop(dx, input.size(1), input.size(2));
  if (wants_weight(0)) out[1] = dw;
  if (has_bias_ && wants_weight(1)) out[2] = g.sum({0, 1, 2});
  return out;
}

}  // namespace

Size2D Size2D::deserialize(const Config& config) {
  if (config.is_number()) return config.integer();
  COHORT_CHECK_ARG(config.list().size() == 2, "[config] expected two sizes, got ", config);
  return {config.list()[0].integer(), config.list()[1].integer()};
}

Conv2DLayer::Conv2DLayer(Conv2DConfig config) : LayerImpl(std::move(config)) {
  const Conv2DConfig& o = this->config();
  COHORT_CHECK_ARG(o.filters > 0, "[conv2d] expected filters > 0, got ", o.filters);
  COHORT_CHECK_ARG(o.groups > 0 && o.filters % o.groups == 0,
                   "[conv2d] expected groups that divide the ", o.filters, " filters, got ",
                   o.groups);
  COHORT_CHECK_ARG(o.strides == Size2D(1) || o.dilation_rate == Size2D(1),
                   "[conv2d] strides > 1 and dilation_rate > 1 cannot be combined, got ",
                   text_of(o.strides), " and ", text_of(o.dilation_rate));
  channels_first_ = internal::is_channels_first("conv2d", o.data_format);
  plan_ = std::make_unique<Convolution>(Convolution{
      internal::make_window("conv2d", o.kernel_size, o.strides, o.dilation_rate, o.padding),
      o.groups, o.activation.is_relu()});
}

Conv2DLayer::~Conv2DLayer() = default;

Shape Conv2DLayer::compute_output_shape(const Shape& input_shape) const {
  return internal::output_shape(name(), plan_->window, input_shape, config().filters,
                                channels_first_);
}

void Conv2DLayer::build(const Shape& input_shape) {
  const int64_t axis = channels_first_ ? 1 : 3;
  COHORT_CHECK_ARG(input_shape.size() == 4 && input_shape[static_cast<std::size_t>(axis)] > 0, "[",
                   name(), "] expected inputs [batch, ",
                   channels_first_ ? "channels, height, width" : "height, width, channels",
                   "], got shape ", bracketed(input_shape));
  const Conv2DConfig& o = config();
  const int64_t channels = input_shape[static_cast<std::size_t>(axis)];
  COHORT_CHECK_ARG(channels % o.groups == 0, "[", name(), "] expected channels that ", o.groups,
                   " groups divide, got ", channels);
  dtype_ = o.dtype.variable_dtype();
  kernel_ = add_weight(
      {.name = "kernel",
       .shape = {o.kernel_size.height, o.kernel_size.width, channels / o.groups, o.filters},
       .dtype = dtype_,
       .initializer = o.kernel_initializer,
       .regularizer = o.kernel_regularizer,
       .constraint = o.kernel_constraint});
  if (o.use_bias) {
    bias_ = add_weight({.name = "bias",
                        .shape = {o.filters},
                        .dtype = dtype_,
                        .initializer = o.bias_initializer,
                        .regularizer = o.bias_regularizer,
                        .constraint = o.bias_constraint});
  }
  set_input_spec({.rank = 4, .axis = channels_first_ ? axis : -1, .size = channels});
}

Tensor Conv2DLayer::call(const Tensor& input, const CallArgs&) {
  Tensor x = input.scalar_type() == dtype_ ? input : input.to(dtype_);
  const Convolution& convolution = *plan_;
  if (channels_first_) x = internal::to_channels_last(x);
  internal::output_shape(name(), convolution.window, shape_of(x), config().filters, false);
  Tensor y = forward(convolution, x, kernel_.value(), bias_ ? bias_.value() : Tensor());
  if (cohort::internal::needs_node({&x}, {&kernel_, &bias_})) {
    auto node = cohort::internal::make_node<ConvolutionNode>(convolution, x, kernel_, bias_);
    cohort::internal::attach(y, node);
    node->save_output(y);
  }
  if (!convolution.relu) y = config().activation(y);
  return channels_first_ ? internal::to_channels_first(y) : y;
}

Conv2D::Conv2D(int64_t filters, Size2D kernel_size, Conv2DOptions options)
    : Layer(std::make_shared<Conv2DLayer>(Conv2DConfig{std::move(options), filters, kernel_size})) {
}

}  // namespace cohort::keras
