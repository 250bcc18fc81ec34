// SPDX-License-Identifier: Apache-2.0
#include "cohort/values/indexed_slices.h"

#include <ATen/ops/zeros.h>

#include <ostream>

#include "cohort/base/check.h"

namespace cohort {
namespace {

void check_shapes(const IndexedSlices& slices) {
  COHORT_CHECK_ARG(slices.values.defined() && slices.indices.defined(),
                   "[indexed_slices.to_dense] expected values and indices, got an empty tensor");
  COHORT_CHECK_ARG(
      !slices.dense_shape.empty() && slices.indices.dim() == 1 &&
          (slices.indices.scalar_type() == kInt32 || slices.indices.scalar_type() == kInt64),
      "[indexed_slices.to_dense] expected int32 or int64 indices [n] into a table of "
      "at least one dimension, got ",
      dtype_name(slices.indices.scalar_type()), bracketed(shape_of(slices.indices)),
      " and dense_shape ", bracketed(slices.dense_shape));
  Shape expected = slices.dense_shape;
  expected[0] = slices.indices.size(0);
  COHORT_CHECK_ARG(shape_of(slices.values) == expected,
                   "[indexed_slices.to_dense] expected values ", bracketed(expected), ", got ",
                   bracketed(shape_of(slices.values)));
}

// LibTorch's kernels differ in what they check here.
void check_range(const Tensor& indices, int64_t rows) {
  if (indices.numel() == 0) return;
  const int64_t lowest = indices.min().item<int64_t>();
  const int64_t highest = indices.max().item<int64_t>();
  COHORT_CHECK_ARG(lowest >= 0 && highest < rows,
                   "[indexed_slices.to_dense] expected indices in [0, ", rows, "), got ",
                   lowest < 0 ? lowest : highest);
}

}  // namespace

Tensor IndexedSlices::to_dense() const {
  check_shapes(*this);
  check_range(indices, dense_shape[0]);
  return at::zeros(dense_shape, values.options().requires_grad(false))
      .index_add(0, indices, values);
}

std::ostream& operator<<(std::ostream& out, const IndexedSlices& slices) {
  out << "IndexedSlices(indices=" << internal::runtime::values_text(slices.indices) << ", values=";
  internal::runtime::print_tensor(out, slices.values);
  return out << ", dense_shape=" << bracketed(slices.dense_shape) << ")";
}

}  // namespace cohort
