// SPDX-License-Identifier: Apache-2.0
//
// Which values of a step are a replica's share of a loss, to be added up over the replicas, where
// others are means: what compute_average_loss, scale_regularization_loss and Model::compute_loss
// return. Who shows a step's values asks; internal.
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/runtime/tensor.h"
#include "cohort/runtime/thread_context.h"

namespace torch::autograd {
struct Node;
}

namespace cohort::internal {

/// The shares of one replica's step, in the order in which they were made. Threads: bound to its
/// thread in a run.
class LossShares {
 public:
  /// Returns its value, detached; its graph is not kept alive.
  Tensor add(const Tensor& share);
  void clear();

  const std::vector<Tensor>& values() const { return values_; }  ///< Detached.
  /// True for what a share's gradient comes in by.
  bool made_by(const torch::autograd::Node& node) const;

  /// The calling thread's; nullptr where nobody asks.
  static LossShares* current() { return t_slots.top->context.shares; }

 private:
  std::vector<Tensor> values_;
  std::vector<uint64_t> nodes_;  // their numbers, which are unique on a thread
};

}  // namespace cohort::internal
