// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/keras/optimizers/optimizer.h"
#include "cohort/variables/final_gradients.h"

namespace cohort::keras {

using cohort::internal::variables::FinalGradients;
using cohort::internal::variables::PassListener;

void OptimizerBase::minimize(const Tensor& loss, std::span<const Variable> variables,
                             GradientTape& tape) {
  const bool as_computed = built() && accumulator_ == nullptr;
  FinalGradients* const listener = as_computed ? expect_gradients() : nullptr;
  const auto compute = [&] {
    const PassListener pass(listener, loss);
    return tape.gradient(loss, variables);
  };
  try {
    apply_gradients(compute(), {});
    if (listener != nullptr) listener->on_over();
  } catch (...) {
    if (listener != nullptr) listener->on_failure(std::current_exception());
    throw;
  }
}

}  // namespace cohort::keras
