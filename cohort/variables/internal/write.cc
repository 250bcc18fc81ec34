// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/write.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>

#include "cohort/collectives/local_reduce.h"

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

void write_tensor(Tensor& to, Write kind, const Tensor& x) {
  const at::NoGradGuard no_grad;
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
