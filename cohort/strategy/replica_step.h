// SPDX-License-Identifier: Apache-2.0
//
// What a replica knows of the step of fit that it is in; internal. Among it: which of its values
// are a replica's share of a loss, to be added up over the replicas, where others are means: what
// compute_average_loss, scale_regularization_loss and Model::compute_loss return.
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/runtime/tensor.h"
#include "cohort/runtime/thread_context.h"

namespace torch::autograd {
struct Node;
}

namespace cohort::internal::strategy {

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

 private:
  std::vector<Tensor> values_;
  std::vector<uint64_t> nodes_;  // their numbers, which are unique on a thread
};

/// The step that a replica is in, whichever model's fit runs it. Threads: bound to its replica's
/// thread in a run.
struct ReplicaStep {
  int64_t global_rows = -1;  ///< Of the step's batch over all replicas.
  int64_t rows = 0;          ///< Of this replica's part.
  LossShares shares;         ///< Of every model's compute_loss, and of compute_average_loss.

  /// The calling thread's; nullptr outside of fit and its like.
  static ReplicaStep* running() { return runtime::t_slots.top->context.step; }
};

}  // namespace cohort::internal::strategy
