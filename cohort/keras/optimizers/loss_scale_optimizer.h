// SPDX-License-Identifier: Apache-2.0
//
// LossScaleOptimizer: an optimizer for float16, whose small gradients would be zero. The loss is
// multiplied by a scale, and the gradients are divided by it. compile() puts it around the
// optimizer of a model that is made under the policy "mixed_float16".
//
//   keras::LossScaleOptimizer optimizer{keras::Adam()};
//   GradientTape tape;
//   Tensor loss = optimizer.scale_loss(compute_average_loss(loss_fn(y, model(x))));
//   optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()));
#pragma once

#include <string>

#include "cohort/keras/optimizers/optimizer.h"

namespace cohort::keras {

struct LossScaleOptions {
  double initial_scale = 32768;  ///< 2^15.
  /// The scale is doubled after this many updates in a row with finite gradients.
  int dynamic_growth_steps = 2000;
  std::string name = {};
};

/// A step with a gradient that is NaN or infinite, on any replica of any worker, is skipped by all:
/// weights, slots and iterations stay, and the scale is halved. minimize() scales the loss itself;
/// a loop with apply_gradients() does it with scale_loss(). Learning rate, iterations, averages and
/// accumulation are the inner optimizer's.
/// Order: apply_gradients() is a merge point in every call, also when the inner one accumulates.
/// Errors: InvalidArgument for no inner optimizer, a scale that is not finite and above 0, or
///         growth steps below 1; Unimplemented for variables of parameter servers, when it is
///         built.
/// TF: keras.optimizers.LossScaleOptimizer, keras.mixed_precision.LossScaleOptimizer.
class LossScaleOptimizer : public Optimizer {
 public:
  explicit LossScaleOptimizer(const Optimizer& inner_optimizer, LossScaleOptions options = {});
};

}  // namespace cohort::keras
