// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/replica_step.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>

namespace cohort::internal::strategy {

Tensor LossShares::add(const Tensor& share) {
  if (const auto& node = share.grad_fn()) nodes_.push_back(node->sequence_nr());
  return values_.emplace_back(share.detach());
}

void LossShares::clear() {
  values_.clear();
  nodes_.clear();
}

bool LossShares::made_by(const torch::autograd::Node& node) const {
  return std::find(nodes_.begin(), nodes_.end(), node.sequence_nr()) != nodes_.end();
}

}  // namespace cohort::internal::strategy
