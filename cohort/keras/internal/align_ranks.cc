// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/align_ranks.h"

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

}  // namespace cohort::keras::internal
