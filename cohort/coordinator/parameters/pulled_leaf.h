// SPDX-License-Identifier: Apache-2.0
//
// What a replica computes with where the parameters are elsewhere: one leaf, whose numbers are
// replaced when they are read again.
#pragma once

#include "cohort/variables/leaf.h"

namespace cohort::internal::coordinator {

/// Threads: thread-compatible.
class PulledLeaf {
 public:
  /// Has no memory yet: of a table that is only looked up in, none is needed.
  PulledLeaf(const Shape& shape, DType dtype, bool trainable);

  variables::Leaf& leaf() { return leaf_; }
  const Tensor& tensor() const { return leaf_.tensor; }
  bool has_value() const { return has_value_; }
  /// Replaces the numbers by those of `value`, which nobody else may have. A pass that was recorded
  /// with the old ones cannot be gone back any more: it throws.
  void fill(const Tensor& value);
  /// True while a recorded pass that has not been dropped refers to it.
  bool is_recorded() const;

 private:
  variables::Leaf leaf_;
  bool has_value_ = false;
};

}  // namespace cohort::internal::coordinator
