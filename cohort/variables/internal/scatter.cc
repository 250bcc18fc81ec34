// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/scatter.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "cohort/base/check.h"
#include "cohort/values/row_kernels.h"

namespace cohort::internal::variables {
namespace {

// Integers truncate. The lowest number over -1 does not fit: it wraps, where the processor would
// stop the program.
template <class T>
T quotient(T a, T b) {
  if constexpr (std::is_signed_v<T> && std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    if (b == T{-1}) return static_cast<T>(Unsigned{0} - static_cast<Unsigned>(a));
  }
  return static_cast<T>(a / b);
}

template <class T>
void combine(Scatter kind, T* out, const T* values, int64_t size) {
  const auto each = [&](auto op) {
    for (int64_t i = 0; i < size; ++i) out[i] = static_cast<T>(op(out[i], values[i]));
  };
  switch (kind) {
    case Scatter::kAdd:
      return each([](T a, T b) { return a + b; });
    case Scatter::kSub:
      return each([](T a, T b) { return a - b; });
    case Scatter::kMul:
      return each([](T a, T b) { return a * b; });
    case Scatter::kDiv:
      return each(quotient<T>);
    case Scatter::kMin:
      return each([](T a, T b) { return b < a ? b : a; });
    case Scatter::kMax:
      return each([](T a, T b) { return a < b ? b : a; });
    case Scatter::kUpdate:
      break;
  }
}

values::RowOp row_op(Scatter kind) {
  switch (kind) {
    case Scatter::kAdd:
      return values::RowOp::kAdd;
    case Scatter::kSub:
      return values::RowOp::kSub;
    case Scatter::kMul:
      return values::RowOp::kMul;
    case Scatter::kDiv:
      return values::RowOp::kDiv;
    case Scatter::kMin:
      return values::RowOp::kMin;
    case Scatter::kMax:
      return values::RowOp::kMax;
    case Scatter::kUpdate:
      break;
  }
  return values::RowOp::kUpdate;
}

// Integers have no infinity to become: the processor would stop the program.
void check_divisors(const Tensor& values) {
  COHORT_CHECK_ARG(at::isFloatingType(values.scalar_type()) || values.ne(0).all().item<bool>(),
                   "[variable.scatter_div] expected divisors other than 0, got 0 for integers");
}

}  // namespace

const char* operation_name(Scatter kind) {
  switch (kind) {
    case Scatter::kAdd:
      return "[variable.scatter_add] ";
    case Scatter::kSub:
      return "[variable.scatter_sub] ";
    case Scatter::kMul:
      return "[variable.scatter_mul] ";
    case Scatter::kDiv:
      return "[variable.scatter_div] ";
    case Scatter::kMin:
      return "[variable.scatter_min] ";
    case Scatter::kMax:
      return "[variable.scatter_max] ";
    case Scatter::kUpdate:
      return "[variable.scatter_update] ";
  }
  return "[variable.scatter] ";
}

void VariableImpl::check_slices(const char* operation, const IndexedSlices& slices) const {
  check_rows(operation, slices.indices);
  const Description& variable = description_;
  COHORT_CHECK_ARG(slices.indices.dim() == 1, operation,
                   "expected a list of indices of rows of variable \"", variable.name,
                   "\", got shape ", bracketed(slices.indices.sizes()));
  COHORT_CHECK_ARG(slices.dense_shape.empty() || slices.dense_shape == variable.shape, operation,
                   "expected slices of variable \"", variable.name, "\" of shape ",
                   bracketed(variable.shape), ", got slices of shape ",
                   bracketed(slices.dense_shape));
  COHORT_CHECK_ARG(slices.values.defined(), operation, "expected rows for variable \"",
                   variable.name, "\", got an undefined tensor");
  Shape expected = variable.shape;
  expected[0] = slices.indices.size(0);
  COHORT_CHECK_ARG(shape_of(slices.values) == expected, operation, "expected rows of shape ",
                   bracketed(expected), " for variable \"", variable.name, "\", got ",
                   bracketed(slices.values.sizes()));
}

void check_scattered(const char* operation, const VariableImpl& of, const IndexedSlices& slices) {
  of.check_slices(operation, slices);
  const VariableImpl::Description& variable = of.description();
  COHORT_CHECK_ARG(slices.values.scalar_type() == variable.dtype, operation, "expected rows of ",
                   dtype_name(variable.dtype), " for variable \"", variable.name, "\", got ",
                   dtype_name(slices.values.scalar_type()));
}

void scatter_rows(Tensor& to, Scatter kind, const IndexedSlices& slices) {
  const DType dtype = to.scalar_type();
  COHORT_CHECK_ARG(kind == Scatter::kUpdate || (dtype != kBool && !at::isComplexType(dtype)),
                   operation_name(kind), "expected integers or floating numbers, got ",
                   dtype_name(dtype));
  const int64_t rows = slices.indices.size(0);
  if (rows == 0 || to.numel() == 0) return;
  const int64_t size = to.numel() / to.size(0);
  const Tensor updates = slices.values.detach().contiguous();
  const Tensor index = slices.indices.to(kInt64).contiguous();
  if (kind == Scatter::kDiv) check_divisors(updates);
  if (values::RowKernels* const kernels = values::row_kernels(to)) {
    kernels->combine(row_op(kind), to, index.to(to.device()), updates.to(to.device()));
    to.unsafeGetTensorImpl()->bump_version();
    return;
  }
  const auto* at = index.const_data_ptr<int64_t>();
  if (kind == Scatter::kUpdate) {
    const auto bytes = static_cast<std::size_t>(size) * to.element_size();
    auto* out = static_cast<std::byte*>(to.mutable_data_ptr());
    const auto* in = static_cast<const std::byte*>(updates.const_data_ptr());
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(out + static_cast<std::size_t>(at[i]) * bytes,
                  in + static_cast<std::size_t>(i) * bytes, bytes);
    }
  } else {
    AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "scatter_rows", [&] {
      auto* out = to.mutable_data_ptr<scalar_t>();
      const auto* in = updates.const_data_ptr<scalar_t>();
      for (int64_t i = 0; i < rows; ++i) combine(kind, out + at[i] * size, in + i * size, size);
    });
  }
  to.unsafeGetTensorImpl()->bump_version();  // written below autograd's eyes
}

}  // namespace cohort::internal::variables
