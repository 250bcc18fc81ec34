// SPDX-License-Identifier: Apache-2.0
//
// The right to write gradients into arena buffers: while one lives, the next backward pass of the
// same replica writes into other buffers.
//
// What a program keeps of them is never written again, however long after the lease: a place that
// anybody can still see is not handed out, and the gradient gets memory of its own instead.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "cohort/variables/arena.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::internal::variables {

/// Threads: bound to its replica's thread.
class GradientLease {
 public:
  GradientLease();
  ~GradientLease();
  GradientLease(const GradientLease&) = delete;
  GradientLease& operator=(const GradientLease&) = delete;

  /// Whether this is the replica that made it; others must not take places by it.
  bool is_here() const;

  /// Memory in the variable's shape that nobody else can see: its place in this lease's buffer, or
  /// memory of its own.
  Tensor place(VariableImpl& variable);
  /// The place in the buffer; undefined if there is none, or somebody can see it.
  Tensor free_place(VariableImpl& variable);

 private:
  GradientBuffer* buffer(const std::shared_ptr<Arena>& arena, uint64_t epoch);

  const int replica_;  // -1: made in cross-replica context
  std::vector<std::pair<std::shared_ptr<Arena>, GradientBuffer*>> buffers_;
};

}  // namespace cohort::internal::variables
