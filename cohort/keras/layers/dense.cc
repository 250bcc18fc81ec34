// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/threshold_backward.h>

#include "cohort/autograd/layer_node.h"
#include "cohort/base/check.h"
#include "cohort/keras/layers/core.h"
#include "cohort/keras/layers/internal/kept_value.h"
#include "cohort/keras/layers/internal/kernel_and_bias.h"
#include "cohort/keras/layers/internal/kernels.h"
#include "cohort/keras/layers/internal/products.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras {
namespace {

using cohort::internal::autograd::BelowAutograd;
using cohort::internal::autograd::LayerNode;
using cohort::internal::autograd::SavedVariable;
using cohort::internal::autograd::variable_list;
using internal::kept_value;
using internal::kernels;

bool has_kernels(const Tensor& x) { return x.scalar_type() == kFloat32 && x.device().is_cpu(); }

// The rows are counted, not left to -1: that is ambiguous for an empty batch.
Tensor rows_of(const Tensor& x, int64_t columns) {
  if (x.dim() == 2) return x;
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < x.dim(); ++i) rows *= x.size(i);
  return x.reshape({rows, columns});
}

Tensor dense_forward(const Tensor& x, const Tensor& kernel, const Tensor& bias, bool relu) {
  const BelowAutograd below;
  if (internal::multiplies_wide(x)) {
    const Tensor shift = bias.defined() ? bias.to(kFloat32) : bias;
    return dense_forward(x.to(kFloat32), kernel.to(kFloat32), shift, relu).to(x.scalar_type());
  }
  auto shape = x.sizes().vec();
  shape.back() = kernel.size(1);
  Tensor y = at::empty(shape, x.options());
  Tensor out = rows_of(y, kernel.size(1));
  internal::dense_product(out, rows_of(x, kernel.size(0)), kernel, bias, relu);
  return y;
}

class DenseNode final : public LayerNode {
 public:
  /// `cast`: the kernel as it is multiplied, where that is in another type than it is kept in.
  DenseNode(const Tensor& x, const Variable& kernel, const Variable& bias, bool relu,
            Tensor cast = {})
      : x_(x, false),
        kernel_(cast.defined() ? kept_value(kernel) : kernel.value(), false),
        cast_(std::move(cast)),
        relu_(relu),
        has_bias_(bool(bias)),
        is_wide_(cast_.defined() && internal::multiplies_wide(x)) {
    add_input(x);
    add_weight(kernel);
    add_weight(bias);
  }
  // After attach(): an output is saved without its history, or it would own itself.
  void save_output(const Tensor& y) {
    if (relu_) y_ = SavedVariable(y, true);
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
  /// As the products take it.
  Tensor wide(const Tensor& t) const { return is_wide_ ? t.to(kFloat32) : t; }
  Tensor masked(Tensor gradient, Tensor& bias_gradient);
  void sum_rows(const Tensor& g, Tensor& out, bool accumulate);

  SavedVariable x_, kernel_, y_;
  Tensor cast_;
  const bool relu_;
  const bool has_bias_;
  const bool is_wide_;  // float32 products of narrower factors
};

void DenseNode::sum_rows(const Tensor& g, Tensor& out, bool accumulate) {
  if (has_kernels(g)) {
    kernels().mask_and_sum(g.const_data_ptr<float>(), nullptr, nullptr,
                           out.mutable_data_ptr<float>(), g.size(0), g.size(1), accumulate);
  } else if (accumulate) {
    out.add_(g.sum(0));
  } else {
    at::sum_out(out, g, at::IntArrayRef{0}, false, out.scalar_type());
  }
}

// The gradient before the activation, as a contiguous matrix, and the bias's in the same pass.
Tensor DenseNode::masked(Tensor gradient, Tensor& bias_gradient) {
  const bool mine = cohort::internal::autograd::owns(gradient);
  const bool wants_bias = has_bias_ && wants_weight(1);
  Tensor g = rows_of(gradient.contiguous(), gradient.size(-1));
  if (!relu_) {
    if (!wants_bias) return g;
    bias_gradient =
        weight_gradient(1, [&](Tensor& out, bool accumulate) { sum_rows(g, out, accumulate); });
    return g;
  }
  const Tensor y = wide(saved_output());
  if (!has_kernels(g)) {
    const Tensor rows = rows_of(y, g.size(1));
    g = g.is_cpu() ? g.mul(rows.gt(0)) : at::threshold_backward(g, rows, 0);
    if (wants_bias) {
      bias_gradient =
          weight_gradient(1, [&](Tensor& out, bool accumulate) { sum_rows(g, out, accumulate); });
    }
    return g;
  }
  const bool fresh = !gradient.is_contiguous();
  Tensor out = mine || fresh ? g : at::empty(g.sizes(), g.options());
  const auto run = [&](float* sum, bool accumulate) {
    kernels().mask_and_sum(g.const_data_ptr<float>(), y.const_data_ptr<float>(),
                           out.mutable_data_ptr<float>(), sum, g.size(0), g.size(1), accumulate);
  };
  if (wants_bias) {
    bias_gradient = weight_gradient(
        1, [&](Tensor& sum, bool accumulate) { run(sum.mutable_data_ptr<float>(), accumulate); });
  } else {
    run(nullptr, false);
  }
  return out;
}

variable_list DenseNode::backward(variable_list&& gradients) {
  variable_list out(3);
  if (!gradients[0].defined()) return out;
  const Tensor x = wide(x_.unpack());
  const Tensor kept = kernel_.unpack();
  const Tensor kernel = wide(cast_.defined() ? cast_ : kept);
  const DType type = gradients[0].scalar_type();
  if (is_wide_) gradients[0] = wide(gradients[0]);
  const Tensor g = masked(std::move(gradients[0]), out[2]);
  const bool wants_x = wants_input(0);
  if (wants_x) out[0] = at::empty(x.sizes(), g.options());
  Tensor dx = wants_x ? rows_of(out[0], kernel.size(0)) : Tensor();
  if (wants_weight(0)) {
    const Tensor rows = rows_of(x, kernel.size(0));
    out[1] = weight_gradient(0, [&](Tensor& dw, bool accumulate) {
      if (wants_x) return internal::dense_gradients(dw, dx, rows, g, kernel, accumulate);
      internal::dense_kernel_gradient(dw, rows, g, accumulate);
    });
  } else if (wants_x) {
    internal::dense_input_gradient(dx, g, kernel);
  }
  if (is_wide_ && wants_x) out[0] = out[0].to(type);
  return out;
}

variable_list DenseNode::differentiable_backward(variable_list&& gradients) {
  variable_list out(3);
  if (!gradients[0].defined()) return out;
  const Tensor x = x_.unpack();
  const Tensor kept = kernel_.unpack();
  const Tensor kernel = cast_.defined() ? kept.to(x.scalar_type()) : kept;
  Tensor g = rows_of(gradients[0], kernel.size(1));
  if (relu_) g = g.mul(rows_of(saved_output(), kernel.size(1)).detach().gt(0));
  if (wants_input(0)) out[0] = g.mm(kernel.t()).reshape(x.sizes());
  const DType type = kept.scalar_type();
  if (wants_weight(0)) out[1] = rows_of(x, kernel.size(0)).t().mm(g).to(type);
  if (has_bias_ && wants_weight(1)) out[2] = g.sum(0).to(type);
  return out;
}

}  // namespace

DenseLayer::DenseLayer(DenseConfig config) : LayerImpl(std::move(config)) {
  COHORT_CHECK_ARG(this->config().units > 0, "[dense] expected units > 0, got ",
                   this->config().units);
}

void DenseLayer::build(const Shape& input_shape) {
  COHORT_CHECK_ARG(input_shape.size() >= 2 && input_shape.back() > 0, "[", name(),
                   "] expected inputs [batch, ..., features], got shape ", bracketed(input_shape));
  const DenseConfig& o = config();
  dtype_ = o.dtype.variable_dtype();
  is_mixed_ = o.dtype.is_mixed();
  kernel_ = add_weight(internal::kernel_options(o, {input_shape.back(), o.units}));
  if (o.use_bias) bias_ = add_weight(internal::bias_options(o, {o.units}));
  set_input_spec({.min_rank = 2, .axis = -1, .size = input_shape.back()});
}

Shape DenseLayer::compute_output_shape(const Shape& input_shape) const {
  COHORT_CHECK_ARG(!input_shape.empty(), "[", name(), "] expected at least 1 axis, got a scalar");
  Shape out = input_shape;
  out.back() = config().units;
  return out;
}

Tensor DenseLayer::call(const Tensor& input, const CallArgs&) {
  if (is_mixed_) [[unlikely]]
    return call_mixed(input);
  const Tensor x = input.scalar_type() == dtype_ ? input : input.to(dtype_);
  const ActivationFunction& activation = config().activation;
  const bool relu = activation.is_relu();
  Tensor y = dense_forward(x, kernel_.value(), bias_ ? bias_.value() : Tensor(), relu);
  if (cohort::internal::autograd::needs_node({&x}, {&kernel_, &bias_})) {
    auto node = cohort::internal::runtime::make_node<DenseNode>(x, kernel_, bias_, relu);
    cohort::internal::autograd::attach(y, node);
    node->save_output(y);
  }
  return relu ? y : activation(y);
}

// Inputs and weights come in the type that is computed in.
Tensor DenseLayer::call_mixed(const Tensor& input) const {
  const bool is_wide = internal::multiplies_wide(config().dtype.compute_dtype());
  const bool is_here = kernel_.impl().local() != nullptr;
  if (!input.is_cpu() || (is_wide && is_here)) return call_cast(input);
  const Tensor kernel = kernel_.value();
  const Tensor x = input.to(kernel.scalar_type());
  const Tensor rows = rows_of(x, kernel.size(0));
  const Tensor product = bias_ ? at::addmm(bias_.value(), rows, kernel) : rows.mm(kernel);
  auto shape = x.sizes().vec();
  shape.back() = kernel.size(1);
  return config().activation(product.reshape(shape));
}

// Through the node, which casts each weight once and writes the gradients in the type that weights
// are kept in.
Tensor DenseLayer::call_cast(const Tensor& input) const {
  const DType type = config().dtype.compute_dtype();
  const Tensor x = input.to(type);
  const bool relu = config().activation.is_relu();
  Tensor kernel, bias;
  {
    const BelowAutograd below;
    kernel = kept_value(kernel_).to(type);
    if (internal::multiplies_wide(x)) kernel = kernel.to(kFloat32);  // once for both ways
    if (bias_) bias = kept_value(bias_).to(type);
  }
  Tensor y = dense_forward(x, kernel, bias, relu);
  if (cohort::internal::autograd::needs_node({&x}, {&kernel_, &bias_})) {
    auto node = cohort::internal::runtime::make_node<DenseNode>(x, kernel_, bias_, relu, kernel);
    cohort::internal::autograd::attach(y, node);
    node->save_output(y);
  }
  return relu ? y : config().activation(y);
}

Dense::Dense(int64_t units, DenseOptions options)
    : Layer(std::make_shared<DenseLayer>(DenseConfig{std::move(options), units})) {}

}  // namespace cohort::keras
