// SPDX-License-Identifier: Apache-2.0
//
// The gradient of one variable: nothing, a tensor, or rows of a table.
#pragma once

#include <iosfwd>
#include <utility>
#include <variant>

#include "cohort/runtime/tensor.h"
#include "cohort/values/indexed_slices.h"

namespace cohort {

/// A copy shares the tensors. Threads: as for tensors, reading is safe.
/// TF: None, tf.Tensor or tf.IndexedSlices.
class Gradient {
 public:
  /// None: the target does not depend on the source.
  Gradient() = default;
  /// An undefined tensor is none, as in LibTorch.
  Gradient(Tensor dense);        // NOLINT: implicit, each of the three is a gradient
  Gradient(IndexedSlices rows);  // NOLINT

  Gradient(const Gradient&) = default;
  Gradient& operator=(const Gradient&) = default;
  /// What was moved from is none.
  Gradient(Gradient&& other) noexcept : value_(std::exchange(other.value_, {})) {}
  Gradient& operator=(Gradient&& other) noexcept {
    value_ = std::exchange(other.value_, {});
    return *this;
  }

  bool has_value() const { return !std::holds_alternative<std::monostate>(value_); }
  bool is_sparse() const { return std::holds_alternative<IndexedSlices>(value_); }

  /// Errors: FailedPrecondition if none or sparse.
  const Tensor& dense() const&;
  Tensor dense() const&& { return static_cast<const Gradient&>(*this).dense(); }
  /// Errors: FailedPrecondition if none or dense.
  const IndexedSlices& slices() const&;
  IndexedSlices slices() const&& { return static_cast<const Gradient&>(*this).slices(); }

  /// dense(), or a sparse one made dense. Errors: FailedPrecondition if none.
  Tensor as_tensor() const;
  operator Tensor() const { return as_tensor(); }  // NOLINT: implicit, as in TensorFlow

  /// True if both are none, or hold the same tensors (the same objects, not equal numbers).
  bool is_same(const Gradient& other) const;

 private:
  std::variant<std::monostate, Tensor, IndexedSlices> value_;
};

/// As its tensor or slices; "None".
std::ostream& operator<<(std::ostream& out, const Gradient& gradient);

}  // namespace cohort
