// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/activation.h"

#include <ATen/ops/where.h>

#include "cohort/base/check.h"

namespace cohort::keras {

LeakyReLULayer::LeakyReLULayer(LeakyReLUOptions options) : LayerImpl(std::move(options)) {
  COHORT_CHECK_ARG(config().negative_slope >= 0, "[leaky_re_lu] expected negative_slope >= 0, got ",
                   config().negative_slope);
}

SharedAxes SharedAxes::deserialize(const Config& config) {
  if (config.is_number()) return config.integer();
  SharedAxes axes({});
  for (const Config& axis : config.list()) axes.each.push_back(axis.integer());
  return axes;
}

void PReLULayer::build(const Shape& input_shape) {
  const auto rank = static_cast<int64_t>(input_shape.size());
  COHORT_CHECK_ARG(rank >= 2, "[", name(),
                   "] expected inputs with a batch and features, got shape ",
                   bracketed(input_shape));
  Shape shape(input_shape.begin() + 1, input_shape.end());
  for (const int64_t axis : config().shared_axes.value_or(SharedAxes({})).each) {
    COHORT_CHECK_ARG(axis > 0 && axis < rank, "[", name(),
                     "] expected shared axes after the batch, got ", axis, " of shape ",
                     bracketed(input_shape));
    shape[static_cast<std::size_t>(axis) - 1] = 1;
  }
  alpha_ = add_weight({.name = "alpha",
                       .shape = shape,
                       .dtype = config().dtype.variable_dtype(),
                       .initializer = config().alpha_initializer,
                       .regularizer = config().alpha_regularizer,
                       .constraint = config().alpha_constraint});
  set_input_spec({.rank = rank});
}

Tensor PReLULayer::call(const Tensor& x, const CallArgs&) {
  return x.clamp_min(0) + alpha_.value() * x.clamp_max(0);
}

}  // namespace cohort::keras
