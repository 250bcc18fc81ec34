// SPDX-License-Identifier: Apache-2.0
//
// For code that calls loss.backward(): what it left in `.grad` of the variables, for optimizers.
//
//   strategy.run([&](const Tensor& x, const Tensor& y) {
//     Tensor loss = compute_average_loss(loss_fn(y, model(x)), {...});
//     loss.backward();                                                    // adds to .grad
//     optimizer.apply_gradients(gradients_of(model.trainable_variables()));
//     zero_grad(model.trainable_variables());
//   }, batch);
//
// tape.gradient needs neither the copy nor zero_grad; `.grad` is the way of LibTorch's own
// programs.
#pragma once

#include <initializer_list>
#include <span>

#include "cohort/collectives/options.h"
#include "cohort/variables/gradients_and_variables.h"
#include "cohort/variables/variable.h"

namespace cohort {

/// This replica's `.grad` of each variable, copied to where optimizers read gradients; the caller
/// may change `.grad` afterwards. A `.grad` that is undefined becomes a gradient that is none, a
/// sparse one IndexedSlices.
/// Errors: FailedPrecondition for variables of a strategy with another number of replicas, and in
///         cross-replica context of one with several.
/// Cost: a pass over the gradients.
Gradients gradients_of(std::span<const Variable> variables);
inline Gradients gradients_of(std::initializer_list<Variable> variables) {
  return gradients_of(std::span(variables.begin(), variables.size()));
}

/// Forgets this replica's `.grad` of each variable, as torch::optim::Optimizer::zero_grad does.
void zero_grad(std::span<const Variable> variables);
inline void zero_grad(std::initializer_list<Variable> variables) {
  zero_grad(std::span(variables.begin(), variables.size()));
}

/// Makes `.grad` on every replica the sum or the mean of all replicas', in replica order; a replica
/// without one counts as zero, a variable without any stays so. What torch::optim steps on then.
/// Order: a merge point; nothing is written before every replica has come. Does nothing with one
/// replica.
/// Errors: InvalidArgument for another reduction; Unimplemented for sparse gradients; else as
///         gradients_of.
void all_reduce_grad(std::span<const Variable> variables, ReduceOpArg op = ReduceOp::kMean);
inline void all_reduce_grad(std::initializer_list<Variable> variables,
                            ReduceOpArg op = ReduceOp::kMean) {
  all_reduce_grad(std::span(variables.begin(), variables.size()), op);
}

}  // namespace cohort
