// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/tensor.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "cohort/base/check.h"

namespace cohort {
namespace {

void check_shape(const char* operation, const Shape& shape) {
  COHORT_CHECK_ARG(std::all_of(shape.begin(), shape.end(), [](int64_t d) { return d >= 0; }),
                   operation, "expected a shape without unknown dimensions, got ",
                   bracketed(shape));
}

}  // namespace

Tensor tensor(std::initializer_list<double> values, DType dtype) {
  return internal::runtime::copy_of(values.begin(), {static_cast<int64_t>(values.size())}, kFloat64)
      .to(dtype);
}

Tensor scalar(double value, DType dtype) { return full({}, value, dtype); }
Tensor zeros(const Shape& shape, DType dtype) { return full(shape, 0, dtype); }
Tensor ones(const Shape& shape, DType dtype) { return full(shape, 1, dtype); }
Tensor full(const Shape& shape, double value, DType dtype) {
  check_shape("[full] ", shape);
  return at::full(shape, value, at::TensorOptions().dtype(dtype));
}
Tensor empty(const Shape& shape, DType dtype) {
  check_shape("[empty] ", shape);
  return at::empty(shape, at::TensorOptions().dtype(dtype));
}
Tensor arange(int64_t end, DType dtype) {
  COHORT_CHECK_ARG(end >= 0, "[arange] expected an end of 0 or more, got ", end);
  return at::arange(end, at::TensorOptions().dtype(dtype));
}

Tensor concat(std::span<const Tensor> parts, int64_t axis) {
  static constexpr const char* kOperation = "[concat] ";
  COHORT_CHECK_ARG(!parts.empty(), kOperation, "expected at least 1 tensor, got none");
  for (const Tensor& part : parts) internal::runtime::check_defined(kOperation, part);
  return internal::runtime::in_plain_words(
      kOperation, [&] { return at::cat(at::TensorList(parts.data(), parts.size()), axis); });
}

Shape shape_of(const Tensor& x) {
  internal::runtime::check_defined("[shape_of] ", x);
  return x.sizes().vec();
}

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::Bool:
      return "bool";
    case DType::Byte:
      return "uint8";
    case DType::Char:
      return "int8";
    case DType::Short:
      return "int16";
    case DType::Int:
      return "int32";
    case DType::Long:
      return "int64";
    case DType::UInt16:
      return "uint16";
    case DType::UInt32:
      return "uint32";
    case DType::UInt64:
      return "uint64";
    case DType::Half:
      return "float16";
    case DType::BFloat16:
      return "bfloat16";
    case DType::Float:
      return "float32";
    case DType::Double:
      return "float64";
    default:
      return c10::toString(dtype);
  }
}

namespace internal::runtime {

Tensor copy_of(const void* data, const Shape& shape, DType dtype) {
  // from_blob only reads here: the clone owns its memory.
  return at::from_blob(const_cast<void*>(data), shape, at::TensorOptions().dtype(dtype)).clone();
}

void copy_to(const Tensor& t, void* out, DType dtype) {
  at::from_blob(out, t.sizes(), at::TensorOptions().dtype(dtype)).copy_(t.detach());
}

void check_data_size(std::size_t got, const Shape& shape) {
  const int64_t expected =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  COHORT_CHECK_ARG(std::all_of(shape.begin(), shape.end(), [](int64_t d) { return d >= 0; }),
                   "[from_vector] expected a shape without unknown dimensions, got ",
                   bracketed(shape));
  COHORT_CHECK_ARG(static_cast<int64_t>(got) == expected, "[from_vector] expected ", expected,
                   " values for shape ", bracketed(shape), ", got ", got);
}

void check_defined(const char* operation, const Tensor& t) {
  COHORT_CHECK_ARG(t.defined(), operation, "expected a tensor, got an undefined one");
}

void throw_in_plain_words(const char* operation, const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  throw InvalidArgument(str_cat(operation, text.substr(0, text.find('\n'))));
}

Tensor number_over(const at::Scalar& a, const Tensor& t) {
  Tensor number = at::scalar_to_tensor(a, t.device());
  // As in `t / a`: a number does not widen the tensor's type.
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return number.div(t);
}

Tensor number_modulo(const at::Scalar& a, const Tensor& t) {
  Tensor number = at::scalar_to_tensor(a, t.device());
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return number.remainder(t);
}

}  // namespace internal::runtime
}  // namespace cohort
