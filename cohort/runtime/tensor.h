// SPDX-License-Identifier: Apache-2.0
//
// The cheap door to tensors: LibTorch's at::Tensor by alias, its operators, and a handful of
// constructors. Everything else is LibTorch: methods (x.matmul(w)) or <ATen/ops/...>.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace cohort {

using Tensor = at::Tensor;
using DType = at::ScalarType;
using Shape = std::vector<int64_t>;

/// Python's None in a shape.
inline constexpr int64_t kUnknownDim = -1;

inline constexpr DType kBool = DType::Bool;
inline constexpr DType kUint8 = DType::Byte;
inline constexpr DType kInt32 = DType::Int;
inline constexpr DType kInt64 = DType::Long;
inline constexpr DType kFloat16 = DType::Half;
inline constexpr DType kBFloat16 = DType::BFloat16;
inline constexpr DType kFloat32 = DType::Float;
inline constexpr DType kFloat64 = DType::Double;

/// A 1-D tensor of the values.
Tensor tensor(std::initializer_list<double> values, DType dtype = kFloat32);
/// A 0-D tensor.
Tensor scalar(double value, DType dtype = kFloat32);
Tensor zeros(const Shape& shape, DType dtype = kFloat32);
Tensor ones(const Shape& shape, DType dtype = kFloat32);
Tensor full(const Shape& shape, double value, DType dtype = kFloat32);
/// Uninitialised.
Tensor empty(const Shape& shape, DType dtype = kFloat32);
/// 0, 1, ..., end - 1.
Tensor arange(int64_t end, DType dtype = kInt64);
/// Joins along `axis`. Shapes: equal but for `axis`.
Tensor concat(std::span<const Tensor> parts, int64_t axis = 0);
/// Shape as a vector, e.g. for error texts: bracketed(shape_of(x)).
Shape shape_of(const Tensor& x);
/// "float32", "int64"...: the names that Keras and NumPy use.
const char* dtype_name(DType dtype);

namespace internal::runtime {
Tensor copy_of(const void* data, const Shape& shape, DType dtype);
void copy_to(const Tensor& t, void* out, DType dtype);
template <class T>
inline constexpr DType dtype_of = c10::CppTypeToScalarType<T>::value;
}  // namespace internal::runtime

/// Copies `data`; a view of memory that outlives the tensor is at::from_blob.
/// Errors: InvalidArgument unless data.size() is the product of `shape`.
template <class T>
Tensor from_vector(const std::vector<T>& data, const Shape& shape);
/// A host copy in row-major order, converted to T. Errors: InvalidArgument for an empty handle.
template <class T>
std::vector<T> to_vector(const Tensor& t);

/// A class that reads as a tensor (Variable, Gradient, PerReplica<Tensor>) joins the operators by
/// this member.
template <class T>
concept ReadsAsTensor = requires(const T& t) {
  { t.as_tensor() } -> std::convertible_to<Tensor>;
};
template <class T>
concept TensorOperand = std::same_as<T, Tensor> || ReadsAsTensor<T>;
template <class A, class B>
concept TensorOperands = (TensorOperand<A> && (TensorOperand<B> || std::is_arithmetic_v<B>)) ||
                         (std::is_arithmetic_v<A> && TensorOperand<B>);
/// == and != compare elements where one side is a tensor or a number; two variables are equal if
/// they are the same.
template <class A, class B>
concept TensorComparands = TensorOperands<A, B> && !(ReadsAsTensor<A> && ReadsAsTensor<B>);

namespace internal::runtime {
template <class T>
decltype(auto) read_operand(const T& x) {
  if constexpr (ReadsAsTensor<T>) {
    return x.as_tensor();
  } else {
    return (x);
  }
}
void check_data_size(std::size_t got, const Shape& shape);
/// Errors: InvalidArgument "[operation] expected ..., got an undefined tensor".
void check_defined(const char* operation, const Tensor& t);
/// InvalidArgument with the operation before LibTorch's text, and without its stack trace.
[[noreturn]] void throw_in_plain_words(const char* operation, const c10::Error& error);
/// f(), where LibTorch's error becomes such a one.
template <class F>
decltype(auto) in_plain_words(const char* operation, F&& f) {
  try {
    return f();
  } catch (const c10::Error& error) {
    throw_in_plain_words(operation, error);
  }
}
/// "Tensor([1. 2.], shape=[2], dtype=float32)": numbers as NumPy writes them; of more than 1000
/// elements three at each end of an axis.
void print_tensor(std::ostream& out, const Tensor& t);
/// The numbers alone, as text.
std::string values_text(const Tensor& t);
void print_shape(std::ostream& out, const Shape& shape);
/// a / t, rounded once: t.reciprocal().mul(a) gives 49 / 49 < 1.
Tensor number_over(const at::Scalar& a, const Tensor& t);
/// a % t.
Tensor number_modulo(const at::Scalar& a, const Tensor& t);
}  // namespace internal::runtime

template <class T>
Tensor from_vector(const std::vector<T>& data, const Shape& shape) {
  internal::runtime::check_data_size(data.size(), shape);
  if constexpr (std::is_same_v<T, bool>) {  // std::vector<bool> holds bits
    const std::vector<uint8_t> bytes(data.begin(), data.end());
    return internal::runtime::copy_of(bytes.data(), shape, kBool);
  } else {
    return internal::runtime::copy_of(data.data(), shape, internal::runtime::dtype_of<T>);
  }
}

template <class T>
std::vector<T> to_vector(const Tensor& t) {
  internal::runtime::check_defined("[to_vector] ", t);
  using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
  std::vector<Stored> out(static_cast<std::size_t>(t.numel()));
  internal::runtime::copy_to(t, out.data(), internal::runtime::dtype_of<T>);
  if constexpr (std::is_same_v<T, bool>) {
    return {out.begin(), out.end()};
  } else {
    return out;
  }
}

// These lose to ATen's own operators where a unit includes ATen/ATen.h: they are templates.
#define COHORT_DEFINE_OPERATOR(op, Operands, method, reversed)                              \
  template <class A, class B>                                                               \
  requires Operands<A, B> Tensor operator op(const A& a, const B& b) {                      \
    if constexpr (std::is_arithmetic_v<B>) {                                                \
      return internal::runtime::read_operand(a).method(at::Scalar(b));                      \
    } else if constexpr (std::is_arithmetic_v<A>) {                                         \
      const Tensor& t = internal::runtime::read_operand(b);                                 \
      return reversed;                                                                      \
    } else {                                                                                \
      return internal::runtime::read_operand(a).method(internal::runtime::read_operand(b)); \
    }                                                                                       \
  }
COHORT_DEFINE_OPERATOR(+, TensorOperands, add, t.add(at::Scalar(a)))
COHORT_DEFINE_OPERATOR(-, TensorOperands, sub, t.neg().add(at::Scalar(a)))
COHORT_DEFINE_OPERATOR(*, TensorOperands, mul, t.mul(at::Scalar(a)))
COHORT_DEFINE_OPERATOR(/, TensorOperands, div, internal::runtime::number_over(at::Scalar(a), t))
COHORT_DEFINE_OPERATOR(%, TensorOperands, remainder,
                       internal::runtime::number_modulo(at::Scalar(a), t))
COHORT_DEFINE_OPERATOR(<, TensorOperands, lt, t.gt(at::Scalar(a)))
COHORT_DEFINE_OPERATOR(>, TensorOperands, gt, t.lt(at::Scalar(a)))
COHORT_DEFINE_OPERATOR(<=, TensorOperands, le, t.ge(at::Scalar(a)))
COHORT_DEFINE_OPERATOR(>=, TensorOperands, ge, t.le(at::Scalar(a)))
COHORT_DEFINE_OPERATOR(==, TensorComparands, eq, t.eq(at::Scalar(a)))
COHORT_DEFINE_OPERATOR(!=, TensorComparands, ne, t.ne(at::Scalar(a)))
#undef COHORT_DEFINE_OPERATOR

template <TensorOperand A>
Tensor operator-(const A& a) {
  return internal::runtime::read_operand(a).neg();
}

/// "[2, ?]": with ? for an unknown dimension.
template <std::same_as<Shape> S>
std::ostream& operator<<(std::ostream& out, const S& shape) {
  internal::runtime::print_shape(out, shape);
  return out;
}

}  // namespace cohort

namespace at {

/// As cohort::internal::runtime::print_tensor. It stands where the tensor's class does, so that it
/// is found from everywhere, and loses to ATen's own where a unit includes ATen/core/Formatting.h.
template <std::same_as<Tensor> T>
std::ostream& operator<<(std::ostream& out, const T& tensor) {
  cohort::internal::runtime::print_tensor(out, tensor);
  return out;
}

}  // namespace at
