// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/loss_scaling.h"

#include <ATen/ExpandUtils.h>

#include "cohort/base/check.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/replica_step.h"

namespace cohort {

namespace {
Tensor noted(Tensor share) {
  if (auto* step = internal::strategy::ReplicaStep::running(); step != nullptr)
    step->shares.add(share);
  return share;
}

// As TensorFlow: a last axis of 1 more than the losses have goes, and weights with an axis less are
// those of rows. What would make losses of pairs of rows is refused.
Tensor weighted(const char* operation, const Tensor& loss, const Tensor& weight) {
  Tensor fitting = weight;
  if (weight.dim() == loss.dim() + 1 && weight.size(-1) == 1) fitting = weight.squeeze(-1);
  if (weight.dim() > 0 && weight.dim() + 1 == loss.dim()) fitting = weight.unsqueeze(-1);
  const bool fits = (fitting.dim() == 0 || fitting.dim() == loss.dim()) &&
                    at::is_expandable_to(fitting.sizes(), loss.sizes());
  COHORT_CHECK_ARG(fits, operation, "expected sample_weight of shape ", bracketed(loss.sizes()),
                   " like the losses, or a weight for each row, got ", bracketed(weight.sizes()));
  return loss.mul(fitting);
}

}  // namespace

Tensor compute_average_loss(const Tensor& per_example_loss, const AverageLossOptions& options) {
  static constexpr const char* kOperation = "[compute_average_loss] ";
  internal::runtime::check_defined(kOperation, per_example_loss);
  COHORT_CHECK_ARG(per_example_loss.dim() > 0, kOperation,
                   "expected a value per example, got a scalar; use Reduction::kNone in the loss");
  int64_t batch = 0;
  if (options.global_batch_size) {
    batch = *options.global_batch_size;
    COHORT_CHECK_ARG(batch >= 0, kOperation, "expected a global batch size of 0 or more, got ",
                     batch);
  } else {
    const ReplicaContext ctx = get_replica_context();
    COHORT_CHECK_STATE(
        static_cast<bool>(ctx), kOperation,
        "expected global_batch_size in cross-replica context, got none; give it, or call "
        "this inside strategy.run");
    batch = per_example_loss.size(0) * ctx.num_replicas_in_sync();
  }
  const Tensor loss = options.sample_weight.defined()
                          ? weighted(kOperation, per_example_loss, options.sample_weight)
                          : per_example_loss;
  const Tensor sum = loss.sum();
  return noted(batch == 0 ? sum.mul(0.0) : sum.div(static_cast<double>(batch)));
}

Tensor scale_regularization_loss(const Tensor& loss) {
  internal::runtime::check_defined("[scale_regularization_loss] ", loss);
  const ReplicaContext ctx = get_replica_context();
  COHORT_CHECK_STATE(static_cast<bool>(ctx),
                     "[scale_regularization_loss] expected to be inside strategy.run, got "
                     "cross-replica context");
  return noted(loss.sum().div(static_cast<double>(ctx.num_replicas_in_sync())));
}

}  // namespace cohort
