// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/local_reduce.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include "cohort/base/check.h"

namespace cohort::internal {
namespace {

Tensor combine(ReduceOp op, const Tensor& a, const Tensor& b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return a.add(b);
    case ReduceOp::kMin:
      return at::minimum(a, b);
    case ReduceOp::kMax:
      return at::maximum(a, b);
    case ReduceOp::kProduct:
      return a.mul(b);
  }
  return a;
}

}  // namespace

Tensor reduce_in_order(ReduceOp op, std::span<const Tensor> values) {
  COHORT_CHECK_ARG(!values.empty(), "[reduce] expected at least 1 value, got none");
  Tensor out = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) {
    COHORT_CHECK_ARG(values[i].sizes() == out.sizes(), "[reduce] expected shape ",
                     bracketed(out.sizes()), " on every replica, got ",
                     bracketed(values[i].sizes()), " on replica ", i);
    out = combine(op, out, values[i]);
  }
  if (op != ReduceOp::kMean) return out;
  COHORT_CHECK_ARG(out.is_floating_point() || out.is_complex(),
                   "[reduce] expected a floating type for mean, got ",
                   dtype_name(out.scalar_type()));
  return out.div(static_cast<double>(values.size()));
}

}  // namespace cohort::internal
