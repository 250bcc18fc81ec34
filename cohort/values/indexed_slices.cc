// SPDX-License-Identifier: Apache-2.0
#include "cohort/values/indexed_slices.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <ostream>

#include "cohort/base/check.h"
#include "cohort/values/internal/add_rows.h"
#include "cohort/values/row_kernels.h"

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

// LibTorch's kernels differ in what they check here. Nobody waits for a device: there, what is no
// row's is passed over.
void check_range(const Tensor& indices, int64_t rows) {
  if (indices.numel() == 0 || !indices.is_cpu()) return;
  const int64_t lowest = indices.min().item<int64_t>();
  const int64_t highest = indices.max().item<int64_t>();
  COHORT_CHECK_ARG(lowest >= 0 && highest < rows,
                   "[indexed_slices.to_dense] expected indices in [0, ", rows, "), got ",
                   lowest < 0 ? lowest : highest);
}

template <class T, class Index>
void add_each(T* to, const Index* at, const T* from, int64_t count, int64_t width) {
  for (int64_t i = 0; i < count; ++i, from += width) {
    T* const row = to + static_cast<int64_t>(at[i]) * width;
    for (int64_t j = 0; j < width; ++j) row[j] = row[j] + from[j];
  }
}

}  // namespace

namespace internal::values {

void add_rows(Tensor& to, const Tensor& indices, const Tensor& rows) {
  const int64_t count = indices.numel();
  if (count == 0 || to.numel() == 0) return;
  const at::NoGradGuard no_grad;
  const DType dtype = to.scalar_type();
  if (dtype == kBool) {
    to.index_add_(0, indices, rows);
    return;
  }
  if (dtype == kFloat16 || dtype == kBFloat16) {
    Tensor wide = to.to(kFloat32);
    add_rows(wide, indices, rows);
    to.copy_(wide);
    return;
  }
  const int64_t width = to.numel() / to.size(0);
  const Tensor at = indices.contiguous();
  const Tensor from = rows.detach().to(dtype).contiguous();
  if (RowKernels* const kernels = row_kernels(to)) {
    kernels->combine(RowOp::kAdd, to, at, from);
    to.unsafeGetTensorImpl()->bump_version();
    return;
  }
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX(dtype, "add_rows", [&] {
    auto* const out = to.mutable_data_ptr<scalar_t>();
    const auto* const in = from.const_data_ptr<scalar_t>();
    if (at.scalar_type() == kInt32) {
      add_each(out, at.const_data_ptr<int32_t>(), in, count, width);
    } else {
      add_each(out, at.const_data_ptr<int64_t>(), in, count, width);
    }
  });
  to.unsafeGetTensorImpl()->bump_version();  // written below autograd's eyes
}

void write_dense(const IndexedSlices& slices, Tensor& to) {
  check_shapes(slices);
  check_range(slices.indices, slices.dense_shape[0]);
  const at::NoGradGuard no_grad;
  to.zero_();
  add_rows(to, slices.indices, slices.values);
}

}  // namespace internal::values

Tensor IndexedSlices::to_dense() const {
  check_shapes(*this);
  check_range(indices, dense_shape[0]);
  Tensor out = at::zeros(dense_shape, values.options().requires_grad(false));
  if (values.requires_grad() && at::GradMode::is_enabled()) {
    return out.index_add(0, indices, values);
  }
  internal::values::add_rows(out, indices, values);
  return out;
}

std::ostream& operator<<(std::ostream& out, const IndexedSlices& slices) {
  out << "IndexedSlices(indices=" << internal::runtime::values_text(slices.indices) << ", values=";
  internal::runtime::print_tensor(out, slices.values);
  return out << ", dense_shape=" << bracketed(slices.dense_shape) << ")";
}

}  // namespace cohort
