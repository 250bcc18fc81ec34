// SPDX-License-Identifier: Apache-2.0
#include "cohort/values/gradient.h"

#include <ostream>
#include <utility>

#include "cohort/base/check.h"

namespace cohort {

Gradient::Gradient(Tensor dense) {
  if (dense.defined()) value_ = std::move(dense);
}

Gradient::Gradient(IndexedSlices rows) : value_(std::move(rows)) {}

const Tensor& Gradient::dense() const& {
  const Tensor* dense = std::get_if<Tensor>(&value_);
  COHORT_CHECK_STATE(dense != nullptr, "[gradient.dense] expected a tensor, got ",
                     is_sparse() ? "IndexedSlices; use slices() or as_tensor()"
                                 : "none: the target does not depend on the source");
  return *dense;
}

const IndexedSlices& Gradient::slices() const& {
  const IndexedSlices* rows = std::get_if<IndexedSlices>(&value_);
  COHORT_CHECK_STATE(
      rows != nullptr, "[gradient.slices] expected IndexedSlices, got ",
      has_value() ? "a tensor; use dense()" : "none: the target does not depend on the source");
  return *rows;
}

Tensor Gradient::as_tensor() const { return is_sparse() ? slices().to_dense() : dense(); }

bool Gradient::is_same(const Gradient& other) const {
  if (value_.index() != other.value_.index()) return false;
  if (!has_value()) return true;
  if (!is_sparse()) return dense().is_same(other.dense());
  return slices().values.is_same(other.slices().values) &&
         slices().indices.is_same(other.slices().indices) &&
         slices().dense_shape == other.slices().dense_shape;
}

std::ostream& operator<<(std::ostream& out, const Gradient& gradient) {
  if (!gradient.has_value()) return out << "None";
  if (gradient.is_sparse()) return out << gradient.slices();
  internal::runtime::print_tensor(out, gradient.dense());
  return out;
}

}  // namespace cohort
