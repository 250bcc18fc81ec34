// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/write.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/reductions/unsigned.h"

namespace cohort::internal::variables {

const char* operation_name(Write kind) {
  switch (kind) {
    case Write::kAssign:
      return "[variable.assign] ";
    case Write::kAdd:
      return "[variable.assign_add] ";
    case Write::kSub:
      return "[variable.assign_sub] ";
  }
  return "[variable.assign] ";
}

namespace {

struct IntegerBounds {
  int64_t least, most;
};

template <class N>
constexpr IntegerBounds bounds_of() {
  using Limits = std::numeric_limits<N>;
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  return {
      .least = static_cast<int64_t>(Limits::min()),
      .most = std::cmp_less(Limits::max(), kMost) ? static_cast<int64_t>(Limits::max()) : kMost};
}

// Unset: no type of integers. Of those beyond int64 what an int64 has: aminmax knows no other.
std::optional<IntegerBounds> integer_bounds(DType dtype) {
  switch (dtype) {
    case DType::Bool:
      return IntegerBounds{.least = 0, .most = 1};
    case DType::Byte:
      return bounds_of<uint8_t>();
    case DType::Char:
      return bounds_of<int8_t>();
    case DType::Short:
      return bounds_of<int16_t>();
    case DType::Int:
      return bounds_of<int32_t>();
    case DType::Long:
      return bounds_of<int64_t>();
    case DType::UInt16:
      return bounds_of<uint16_t>();
    case DType::UInt32:
      return bounds_of<uint32_t>();
    case DType::UInt64:
      return bounds_of<uint64_t>();
    default:
      return std::nullopt;
  }
}

}  // namespace

void check_integers(const char* operation, DType dtype, const Tensor& x) {
  const DType from = x.scalar_type();
  if (from == dtype || x.numel() == 0) return;
  const std::optional<IntegerBounds> given = integer_bounds(from);
  const std::optional<IntegerBounds> wanted = integer_bounds(dtype);
  if (!given || !wanted) return;
  const bool is_uint64 = from == DType::UInt64;  // whose bounds, and upper half, int64 cannot say
  const bool fits_all = wanted->least <= given->least && given->most <= wanted->most;
  if (fits_all && !is_uint64) return;
  const auto [least, most] = at::aminmax(at::isBarebonesUnsignedType(from) ? x.to(kInt64) : x);
  COHORT_CHECK_ARG(!is_uint64 || least.item<int64_t>() >= 0, operation, "expected numbers that ",
                   dtype_name(dtype),
                   " can hold, got uint64 numbers of 9223372036854775808 or more");
  for (const int64_t number : {least.item<int64_t>(), most.item<int64_t>()}) {
    COHORT_CHECK_ARG(wanted->least <= number && number <= wanted->most, operation,
                     "expected numbers that ", dtype_name(dtype), " can hold, got ", number);
  }
}

void write_tensor(Tensor& to, Write kind, const Tensor& value) {
  const at::NoGradGuard no_grad;
  check_integers(operation_name(kind), to.scalar_type(), value);
  // A number of the host goes to another device as an argument: a copy would wait for the device.
  const bool is_argument = value.dim() == 0 && value.is_cpu() && !to.is_cpu();
  if (kind == Write::kAssign) {
    is_argument ? to.fill_(value) : to.copy_(value);
    return;
  }
  COHORT_CHECK_ARG(to.scalar_type() != kBool, operation_name(kind),
                   "expected a variable of numbers, got one of bools: assign() them");
  const bool is_unsigned = at::isBarebonesUnsignedType(to.scalar_type());
  const c10::Device place = is_argument && !is_unsigned ? value.device() : to.device();
  const Tensor x = value.to(place, to.scalar_type());
  if (is_unsigned) return reductions::add_unsigned(to, x, kind == Write::kSub);
  kind == Write::kAdd ? to.add_(x) : to.sub_(x);
}

namespace {

bool can_hold(DType dtype, double x) {
  if (dtype == DType::UInt64) return x == std::trunc(x) && x >= 0 && x < 0x1p64;
  if (const std::optional<IntegerBounds> bounds = integer_bounds(dtype)) {
    // The largest int64 rounds up to the first double that does not fit.
    return x == std::trunc(x) && x >= static_cast<double>(bounds->least) &&
           x < static_cast<double>(bounds->most) + 1;
  }
  switch (dtype) {
    case DType::Half:
      return !std::isfinite(x) || std::abs(x) <= 65504;
    case DType::BFloat16:
    case DType::Float:
      return !std::isfinite(x) || std::abs(x) <= std::numeric_limits<float>::max();
    default:
      return true;
  }
}

}  // namespace

Tensor number_of(const char* operation, double number, DType dtype, const Shape& shape) {
  COHORT_CHECK_ARG(can_hold(dtype, number), operation, "expected a number that ", dtype_name(dtype),
                   " can hold, got ", number);
  return full(shape, number, dtype);
}

namespace {

std::vector<Tensor> integer_shares(const Tensor& whole, int count) {
  const Tensor share = whole.div(count, "floor");
  const Tensor remainder = whole - share * count;
  std::vector<Tensor> out;
  for (int i = 0; i < count; ++i) out.push_back(share + remainder.gt(i).to(whole.scalar_type()));
  return out;
}

}  // namespace

std::vector<Tensor> shares_of(const Tensor& whole, int count) {
  const at::NoGradGuard no_grad;
  if (at::isBarebonesUnsignedType(whole.scalar_type())) {
    std::vector<Tensor> out = integer_shares(reductions::as_int64(whole), count);
    for (Tensor& one : out) one = reductions::from_int64(one, whole.scalar_type());
    return out;
  }
  if (at::isIntegralType(whole.scalar_type(), /*includeBool=*/true)) {
    return integer_shares(whole, count);
  }
  const Tensor share = whole / count;
  std::vector<Tensor> out(static_cast<std::size_t>(count), share);
  if (at::isComplexType(whole.scalar_type())) return out;
  const Tensor is_exact = reductions::reduce_in_order(ReduceOp::kSum, out).eq(whole);
  // A share cut to the whole's last digit: sums and differences of such are exact.
  Tensor cut = (share + whole) - whole;
  cut = at::where(at::isfinite(cut), cut, share);
  for (Tensor& one : out) one = at::where(is_exact, share, cut);
  out[0] = at::where(is_exact, share, whole - cut * (count - 1));
  return out;
}

}  // namespace cohort::internal::variables
