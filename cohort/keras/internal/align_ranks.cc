// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/align_ranks.h"

#include <ATen/ExpandUtils.h>

#include "cohort/base/check.h"

namespace cohort::keras::internal {
namespace {

// `longer` has one axis more than `shorter`.
std::pair<Tensor, Tensor> align(const Tensor& shorter, const Tensor& longer) {
  if (longer.size(-1) != 1) return {shorter, longer};
  if (shorter.dim() == 1) return {shorter.unsqueeze(-1), longer};
  return {shorter, longer.squeeze(-1)};
}

}  // namespace

std::pair<Tensor, Tensor> align_ranks(const Tensor& a, const Tensor& b) {
  if (b.dim() == a.dim() + 1) return align(a, b);
  if (a.dim() == b.dim() + 1) {
    auto [second, first] = align(b, a);
    return {first, second};
  }
  return {a, b};
}

std::pair<Tensor, Tensor> comparable(const std::string& name, const char* method,
                                     const Tensor& y_true, const Tensor& y_pred) {
  std::pair<Tensor, Tensor> both = align_ranks(y_true, y_pred);
  const auto& [labels, scores] = both;
  COHORT_CHECK_ARG(
      labels.sizes() == scores.sizes() ||
          (labels.dim() == scores.dim() && at::are_expandable(labels.sizes(), scores.sizes())),
      "[", name, method, "] expected y_true of shape ", bracketed(y_pred.sizes()),
      " like y_pred (or with axes of 1), got ", bracketed(y_true.sizes()));
  return both;
}

}  // namespace cohort::keras::internal
