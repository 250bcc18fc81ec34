// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/layer_normalization.h"

#include <ATen/ops/group_norm.h>
#include <ATen/ops/layer_norm.h>

#include <algorithm>

#include "cohort/base/check.h"

namespace cohort::keras {
namespace {

Shape sizes_along(const std::string& name, const Shape& shape, const std::vector<int64_t>& axes) {
  Shape sizes;
  for (const int64_t axis : axes) {
    sizes.push_back(shape[static_cast<std::size_t>(axis)]);
    COHORT_CHECK_ARG(sizes.back() > 0, "[", name, "] expected a known size of axis ", axis,
                     ", got shape ", bracketed(shape));
  }
  return sizes;
}

// Half precision overflows in sums: float32 at least.
DType at_least_float32(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

// A weight of the sizes along `axes`, so that it broadcasts to x; undefined stays.
Tensor along(const Variable& weight, const Tensor& x, const std::vector<int64_t>& axes) {
  if (!weight) return {};
  std::vector<int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  for (const int64_t axis : axes) shape[static_cast<std::size_t>(axis)] = x.size(axis);
  return weight.value().to(x.scalar_type()).reshape(shape);
}

bool are_last(const std::vector<int64_t>& axes, int64_t rank) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != rank - static_cast<int64_t>(axes.size() - i)) return false;
  }
  return true;
}

}  // namespace

Config AxisList::serialize() const {
  if (!is_list) return each.at(0);
  return Config::List(each.begin(), each.end());
}

AxisList AxisList::deserialize(const Config& config) {
  if (config.is_number()) return config.integer();
  AxisList axes({});
  for (const Config& axis : config.list()) axes.each.push_back(axis.integer());
  return axes;
}

std::vector<int64_t> AxisList::of_rank(const std::string& name, int64_t rank) const {
  std::vector<int64_t> axes;
  for (const int64_t axis : each) {
    axes.push_back(axis < 0 ? axis + rank : axis);
    COHORT_CHECK_ARG(axes.back() >= 0 && axes.back() < rank, "[", name,
                     "] expected inputs with an axis ", axis, ", got ", rank, " axes");
  }
  std::ranges::sort(axes);
  COHORT_CHECK_ARG(std::ranges::adjacent_find(axes) == axes.end(), "[", name,
                   "] expected axes that differ, got ", bracketed(each), " of ", rank, " axes");
  return axes;
}

// Inputs and weights as they are: sums are at least float32's.
LayerNormalizationLayer::LayerNormalizationLayer(LayerNormalizationOptions options)
    : LayerImpl(std::move(options)) {
  set_autocast(false);
}

void LayerNormalizationLayer::build(const Shape& input_shape) {
  const auto rank = static_cast<int64_t>(input_shape.size());
  const LayerNormalizationOptions& o = config();
  axes_ = o.axis.of_rank(name(), rank);
  const Shape shape = sizes_along(name(), input_shape, axes_);
  if (o.scale || o.rms_scaling) {
    gamma_ = add_weight({.name = "gamma",
                         .shape = shape,
                         .dtype = o.dtype.variable_dtype(),
                         .initializer = o.gamma_initializer,
                         .regularizer = o.gamma_regularizer,
                         .constraint = o.gamma_constraint});
  }
  if (o.center && !o.rms_scaling) {
    beta_ = add_weight({.name = "beta",
                        .shape = shape,
                        .dtype = o.dtype.variable_dtype(),
                        .initializer = o.beta_initializer,
                        .regularizer = o.beta_regularizer,
                        .constraint = o.beta_constraint});
  }
  set_input_spec({.rank = rank});
}

Tensor LayerNormalizationLayer::call(const Tensor& input, const CallArgs&) {
  const Tensor x = input.to(at_least_float32(input.scalar_type()));
  const double epsilon = config().epsilon;
  const auto in_type = [&](const Tensor& y) { return y.to(config().dtype.compute_dtype()); };
  if (!config().rms_scaling && are_last(axes_, x.dim())) {
    const auto value = [&](const Variable& v) {
      return v ? v.value().to(x.scalar_type()) : Tensor();
    };
    const auto first = x.dim() - static_cast<int64_t>(axes_.size());
    return in_type(at::layer_norm(x, x.sizes().slice(static_cast<std::size_t>(first)),
                                  value(gamma_), value(beta_), epsilon));
  }
  const Tensor centered = x - x.mean(axes_, true);
  const Tensor inverse = (centered.square().mean(axes_, true) + epsilon).rsqrt();
  Tensor y = (config().rms_scaling ? x : centered) * inverse;
  if (gamma_) y = y * along(gamma_, x, axes_);
  if (beta_) y = y + along(beta_, x, axes_);
  return in_type(y);
}

GroupNormalizationLayer::GroupNormalizationLayer(GroupNormalizationOptions options)
    : LayerImpl(std::move(options)) {
  COHORT_CHECK_ARG(config().groups > 0 || config().groups == -1,
                   "[group_normalization] expected groups > 0 or -1, got ", config().groups);
  set_autocast(false);
}

void GroupNormalizationLayer::build(const Shape& input_shape) {
  const auto rank = static_cast<int64_t>(input_shape.size());
  const GroupNormalizationOptions& o = config();
  axis_ = AxisList(o.axis).of_rank(name(), rank)[0];
  const Shape shape = sizes_along(name(), input_shape, {axis_});
  groups_ = o.groups == -1 ? shape[0] : o.groups;
  COHORT_CHECK_ARG(axis_ > 0 && shape[0] % groups_ == 0, "[", name(), "] expected channels that ",
                   groups_, " groups divide, got ", shape[0]);
  if (o.scale) {
    gamma_ = add_weight({.name = "gamma",
                         .shape = shape,
                         .dtype = o.dtype.variable_dtype(),
                         .initializer = o.gamma_initializer,
                         .regularizer = o.gamma_regularizer,
                         .constraint = o.gamma_constraint});
  }
  if (o.center) {
    beta_ = add_weight({.name = "beta",
                        .shape = shape,
                        .dtype = o.dtype.variable_dtype(),
                        .initializer = o.beta_initializer,
                        .regularizer = o.beta_regularizer,
                        .constraint = o.beta_constraint});
  }
  set_input_spec({.rank = rank, .axis = axis_ == rank - 1 ? -1 : axis_, .size = shape[0]});
}

Tensor GroupNormalizationLayer::call(const Tensor& input, const CallArgs&) {
  const Tensor x = input.to(at_least_float32(input.scalar_type())).movedim(axis_, 1);
  const auto value = [&](const Variable& v) {
    return v ? v.value().to(x.scalar_type()) : Tensor();
  };
  const Tensor y = at::group_norm(x, groups_, value(gamma_), value(beta_), config().epsilon);
  return y.movedim(1, axis_).to(config().dtype.compute_dtype());
}

void RMSNormalizationLayer::build(const Shape& input_shape) {
  const auto rank = static_cast<int64_t>(input_shape.size());
  axes_ = config().axis.of_rank(name(), rank);
  scale_ = add_weight({.name = "scale",
                       .shape = sizes_along(name(), input_shape, axes_),
                       .dtype = config().dtype.variable_dtype(),
                       .initializer = "ones"});
  set_input_spec({.rank = rank});
}

Tensor RMSNormalizationLayer::call(const Tensor& input, const CallArgs&) {
  const Tensor x = input.to(at_least_float32(input.scalar_type()));
  const Tensor inverse = (x.square().mean(axes_, true) + config().epsilon).rsqrt();
  return (x * inverse * along(scale_, x, axes_)).to(config().dtype.compute_dtype());
}

// Keras's bound of the length is 1e-12.
Tensor UnitNormalizationLayer::call(const Tensor& x, const CallArgs&) {
  const std::vector<int64_t> axes = config().axis.of_rank(name(), x.dim());
  return x * x.square().sum(axes, true).clamp_min(1e-24).rsqrt();
}

}  // namespace cohort::keras
