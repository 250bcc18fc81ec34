// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/losses/internal/masked_weight.h"

#include <ATen/ops/zeros.h>

#include "cohort/keras/dtype_policy.h"
#include "cohort/keras/internal/align_ranks.h"
#include "cohort/keras/losses/internal/reduce.h"

namespace cohort::keras::internal {
namespace {

bool is_mean_of_rows(Reduction reduction) {
  return reduction == Reduction::kSumOverBatchSize || reduction == Reduction::kMean;
}

// A loss and the sum of what counts; on a device that sum stays there.
CountedLoss counted_by(const Tensor& value, const Tensor& counts) {
  const Tensor sum = counts.sum();
  if (!sum.is_cpu()) return {value, 0, sum.to(kFloat64)};
  return {value, sum.item<double>()};
}

// Where both are true.
Tensor both_of(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  if (!b.defined()) return a;
  const auto [x, y] = align_ranks(a.to(kBool), b);
  return x.logical_and(y);
}

Tensor two_axes(const Tensor& x) { return x.dim() == 1 ? x.unsqueeze(-1) : x; }

}  // namespace

Tensor masked_weight(const Tensor& kept, const Tensor& sample_weight, Reduction reduction) {
  if (!kept.defined()) [[likely]]
    return sample_weight;
  Tensor mask = kept.to(floatx());
  if (is_mean_of_rows(reduction)) {
    mask = mask * static_cast<double>(mask.numel()) / mask.sum().clamp_min(1);
  }
  if (!sample_weight.defined()) return mask;
  const Tensor weight = sample_weight.to(mask.scalar_type());
  if (weight.dim() == mask.dim()) return weight * mask;
  return two_axes(weight) * two_axes(mask);
}

CountedLoss nothing_counted(const Tensor& value) {
  if (value.is_cpu()) return {value, 0};
  return {value, 0, at::zeros({}, value.options().dtype(kFloat64))};
}

CountedLoss counted_loss(LossBase& loss, const Tensor& y_true, const Tensor& y_pred,
                         const Tensor& mask, const Tensor& sample_weight) {
  const Reduction reduction = loss.reduction();
  if (!loss.leaves_out()) {
    const Tensor weight = masked_weight(mask, sample_weight, reduction);
    const Tensor value = loss.reduced(y_true, y_pred, weight, 1);
    if (reduction == Reduction::kMeanWithSampleWeight && weight.defined()) {
      return counted_by(value, weight);
    }
    if (mask.defined()) return counted_by(value, mask);
    return {value, static_cast<double>(y_true.numel())};
  }
  const Tensor values = loss.call(y_true, y_pred);
  const Tensor counts = both_of(mask, loss.counted(y_true, y_pred, values));
  const Tensor value = reduce_masked(values, counts, sample_weight, reduction, 1);
  if (reduction != Reduction::kMeanWithSampleWeight || !sample_weight.defined()) {
    return counted_by(value, counts);
  }
  const auto [a, b] = align_ranks(counts, sample_weight);
  return counted_by(value, a * b);
}

Tensor as_loss_type(const Tensor& y_pred) {
  const DType dtype = y_pred.scalar_type();
  const bool is_half = dtype == kBFloat16 || dtype == kFloat16;
  return is_half ? y_pred.to(floatx()) : y_pred;
}

}  // namespace cohort::keras::internal
