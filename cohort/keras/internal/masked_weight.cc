// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/masked_weight.h"

#include "cohort/keras/dtype_policy.h"
#include "cohort/keras/internal/layer_call.h"

namespace cohort::keras::internal {
namespace {

Tensor two_axes(const Tensor& x) { return x.dim() == 1 ? x.unsqueeze(-1) : x; }

}  // namespace

Tensor masked_weight(const Tensor& y_pred, const Tensor& sample_weight, Reduction reduction) {
  const Tensor kept = mask_of(y_pred);
  if (!kept.defined()) [[likely]]
    return sample_weight;
  Tensor mask = kept.to(floatx());
  if (reduction == Reduction::kSumOverBatchSize || reduction == Reduction::kMean) {
    constexpr double kEpsilon = 1e-7;
    mask = mask * static_cast<double>(mask.numel()) / (mask.sum() + kEpsilon);
  }
  if (!sample_weight.defined()) return mask;
  const Tensor weight = sample_weight.to(mask.scalar_type());
  if (weight.dim() == mask.dim()) return weight * mask;
  return two_axes(weight) * two_axes(mask);
}

Tensor as_loss_type(const Tensor& y_pred) {
  const DType dtype = y_pred.scalar_type();
  const bool is_half = dtype == kBFloat16 || dtype == kFloat16;
  return is_half ? y_pred.to(floatx()) : y_pred;
}

}  // namespace cohort::keras::internal
