// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/losses/internal/reduce.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>

#include "cohort/base/check.h"
#include "cohort/keras/internal/align_ranks.h"

namespace cohort::keras::internal {
namespace {

// As Keras: by NumPy's rules, both ways. Only weights with more axes than the values have (once a
// trailing 1 is off) are refused: they would make values of pairs of rows.
bool weighs(const Tensor& weights, const Tensor& values) {
  return (weights.dim() <= values.dim() || values.dim() == 0) &&
         at::are_expandable(weights.sizes(), values.sizes());
}

// A replica without rows has no part in the loss, even if what it makes is no number: a function's
// own mean of nothing.
Tensor scaled(const Tensor& x, double scale) {
  if (scale == 0) return x.masked_fill(at::ones({}, x.options().dtype(kBool)), 0);
  return scale == 1 ? x : x.mul(scale);
}

}  // namespace

Tensor reduce_values(const Tensor& values, const Tensor& weight, Reduction reduction,
                     double scale) {
  Tensor weighted = values;
  Tensor weights = weight;
  if (weight.defined()) {
    std::tie(weighted, weights) = align_ranks(values, weight.to(values.scalar_type()));
    COHORT_CHECK_ARG(weighs(weights, weighted), "[loss] expected sample weights of shape ",
                     bracketed(values.sizes()), " or broadcasting to it, got ",
                     bracketed(weight.sizes()));
    weighted = weighted * weights;
  }
  if (reduction == Reduction::kNone) return scaled(weighted, scale);
  const Tensor sum = weighted.sum();
  if (reduction == Reduction::kSum || weighted.dim() == 0) return scaled(sum, scale);
  if (reduction == Reduction::kMeanWithSampleWeight && weight.defined()) {
    const Tensor total = weights.sum();
    const Tensor empty = total.eq(0);
    return scaled((sum / total.masked_fill(empty, 1)).masked_fill(empty, 0), scale);
  }
  const int64_t count = weighted.numel();  // as many as there are products
  return scaled(sum, count == 0 ? 0 : scale / static_cast<double>(count));
}

Tensor reduce_masked(const Tensor& values, const Tensor& mask, const Tensor& weight,
                     Reduction reduction, double scale) {
  Tensor counts = mask.to(values.scalar_type());
  if (reduction == Reduction::kMean || reduction == Reduction::kSumOverBatchSize) {
    const Tensor valid = counts.sum();
    counts = counts * (static_cast<double>(mask.numel()) / valid.clamp_min(1));
  }
  if (weight.defined()) {
    const auto [a, b] = align_ranks(counts, weight.to(values.scalar_type()));
    COHORT_CHECK_ARG(weighs(b, a), "[loss] expected sample weights of shape ",
                     bracketed(values.sizes()), " or broadcasting to it, got ",
                     bracketed(weight.sizes()));
    counts = a * b;
  }
  return reduce_values(values, counts, reduction, scale);
}

std::pair<Tensor, Tensor> matched(const std::string& loss, const Tensor& y_true,
                                  const Tensor& y_pred) {
  auto [labels, scores] = align_ranks(y_true.to(y_pred.scalar_type()), y_pred);
  const bool are_numbers = labels.dim() < scores.dim() || labels.size(-1) == 1;
  COHORT_CHECK_ARG(labels.sizes() == scores.sizes(), "[", loss, "] expected y_true of shape ",
                   bracketed(y_pred.sizes()), " like y_pred, got ", bracketed(y_true.sizes()),
                   are_numbers ? " (class numbers are for sparse_categorical_crossentropy)" : "");
  return {labels, scores};
}

}  // namespace cohort::keras::internal
