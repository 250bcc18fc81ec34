// SPDX-License-Identifier: Apache-2.0
//
// The right to write gradients into arena buffers: while one lives, the next backward pass of the
// same replica writes into other buffers.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "cohort/variables/arena.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::internal {

/// Threads: bound to its replica's thread.
class GradientLease {
 public:
  GradientLease() = default;
  ~GradientLease();
  GradientLease(const GradientLease&) = delete;
  GradientLease& operator=(const GradientLease&) = delete;

  /// This replica's buffer over the variable's arena, taken at the first call.
  GradientBuffer& buffer(const std::shared_ptr<Arena>& arena);
  /// The buffer if taken before, else nullptr.
  GradientBuffer* find(const Arena* arena) const;
  /// The variable's place in this lease's buffer.
  const Tensor& view(VariableImpl& variable);

 private:
  std::vector<std::pair<std::shared_ptr<Arena>, GradientBuffer*>> buffers_;
};

}  // namespace cohort::internal
