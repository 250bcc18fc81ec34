// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/losses/internal/reduce.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/where.h>

#include "cohort/base/check.h"
#include "cohort/keras/internal/align_ranks.h"

namespace cohort::keras::internal {
namespace {

bool broadcasts_to(const Tensor& small, const Tensor& large) {
  return at::is_expandable_to(small.sizes(), large.sizes());
}

Tensor scaled(const Tensor& x, double scale) { return scale == 1 ? x : x.mul(scale); }

}  // namespace

Tensor reduce_values(const Tensor& values, const Tensor& weight, Reduction reduction,
                     double scale) {
  Tensor weighted = values;
  Tensor weights = weight;
  if (weight.defined()) {
    std::tie(weighted, weights) = align_ranks(values, weight.to(values.scalar_type()));
    COHORT_CHECK_ARG(broadcasts_to(weights, weighted), "[loss] expected sample weights of shape ",
                     bracketed(values.sizes()), " or broadcasting to it, got ",
                     bracketed(weight.sizes()));
    weighted = weighted * weights;
  }
  if (reduction == Reduction::kNone) return scaled(weighted, scale);
  const Tensor sum = weighted.sum();
  if (reduction == Reduction::kSum || values.dim() == 0) return scaled(sum, scale);
  if (reduction == Reduction::kMeanWithSampleWeight && weight.defined()) {
    const Tensor total = weights.sum();
    const Tensor empty = total.eq(0);
    return scaled((sum / total.masked_fill(empty, 1)).masked_fill(empty, 0), scale);
  }
  const int64_t count = values.numel();
  return scaled(sum, count == 0 ? 0 : scale / static_cast<double>(count));
}

std::pair<Tensor, Tensor> matched(const std::string& loss, const Tensor& y_true,
                                  const Tensor& y_pred) {
  auto [labels, scores] = align_ranks(y_true.to(y_pred.scalar_type()), y_pred);
  COHORT_CHECK_ARG(labels.sizes() == scores.sizes(), "[", loss, "] expected y_true of shape ",
                   bracketed(y_pred.sizes()), " like y_pred, got ", bracketed(y_true.sizes()));
  return {labels, scores};
}

}  // namespace cohort::keras::internal
