// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/loss_scaling.h"

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
  Tensor loss = per_example_loss;
  if (options.sample_weight.defined()) {
    loss = internal::runtime::in_plain_words(kOperation,
                                             [&] { return loss.mul(options.sample_weight); });
  }
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
