// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/write.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>

#include "cohort/base/check.h"
#include "cohort/reductions/local_reduce.h"

namespace cohort::internal {

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

// Other integers, which a conversion would cut without a word.
void check_integers(const Tensor& to, Write kind, const Tensor& x) {
  const DType from = x.scalar_type();
  const DType type = to.scalar_type();
  if (from == type || !at::isIntegralType(from, true) || !at::isIntegralType(type, true)) return;
  const Tensor lost = x.to(type).to(from).ne(x);
  if (!lost.any().item<bool>()) return;
  COHORT_CHECK_ARG(false, operation_name(kind), "expected numbers that ", dtype_name(type),
                   " can hold, got ", x.masked_select(lost)[0].item<int64_t>());
}

}  // namespace

void write_tensor(Tensor& to, Write kind, const Tensor& x) {
  const at::NoGradGuard no_grad;
  check_integers(to, kind, x);
  switch (kind) {
    case Write::kAssign:
      to.copy_(x);
      break;
    case Write::kAdd:
      to.add_(x.to(to.scalar_type()));
      break;
    case Write::kSub:
      to.sub_(x.to(to.scalar_type()));
      break;
  }
}

namespace {

template <class N>
bool fits_integer(double x) {
  // The largest integer of 64 bits rounds up to the first double that does not fit.
  const double end = std::ldexp(1.0, std::numeric_limits<N>::digits);
  return x == std::trunc(x) && x >= static_cast<double>(std::numeric_limits<N>::min()) && x < end;
}

bool can_hold(DType dtype, double x) {
  switch (dtype) {
    case DType::Bool:
      return x == 0 || x == 1;
    case DType::Byte:
      return fits_integer<uint8_t>(x);
    case DType::Char:
      return fits_integer<int8_t>(x);
    case DType::Short:
      return fits_integer<int16_t>(x);
    case DType::Int:
      return fits_integer<int32_t>(x);
    case DType::Long:
      return fits_integer<int64_t>(x);
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
  if (at::isIntegralType(whole.scalar_type(), /*includeBool=*/true)) {
    return integer_shares(whole, count);
  }
  const Tensor share = whole / count;
  std::vector<Tensor> out(static_cast<std::size_t>(count), share);
  if (at::isComplexType(whole.scalar_type())) return out;
  const Tensor is_exact = reduce_in_order(ReduceOp::kSum, out).eq(whole);
  // A share cut to the whole's last digit: sums and differences of such are exact.
  Tensor cut = (share + whole) - whole;
  cut = at::where(at::isfinite(cut), cut, share);
  for (Tensor& one : out) one = at::where(is_exact, share, cut);
  out[0] = at::where(is_exact, share, whole - cut * (count - 1));
  return out;
}

}  // namespace cohort::internal
