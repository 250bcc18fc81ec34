// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/internal/reduce.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>

#include <algorithm>
#include <set>

#include "cohort/cross_device_ops/cross_device_ops.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::internal {
namespace {

Shape normal_axes(const Tensor& value, const Axes& axes) {
  std::set<int64_t> out;
  for (const int64_t axis : axes.values()) {
    COHORT_CHECK_ARG(axis >= -value.dim() && axis < value.dim(),
                     "[strategy.reduce] expected an axis of a tensor of rank ", value.dim(),
                     ", got ", axis);
    out.insert(axis < 0 ? axis + value.dim() : axis);
  }
  return {out.begin(), out.end()};
}

Tensor product_over(Tensor value, const Shape& axes) {
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) value = value.prod(*axis);
  return value;
}

Tensor reduce_axes(ReduceOp op, const Tensor& value, const Shape& axes) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return value.sum(axes);
    case ReduceOp::kMin:
      return at::amin(value, axes);
    case ReduceOp::kMax:
      return at::amax(value, axes);
    case ReduceOp::kProduct:
      return product_over(value, axes);
  }
  return value;
}

Tensor reduce_across(ReduceOp op, const std::vector<Tensor>& values, CrossDeviceOps* ops) {
  if (ops == nullptr) return reduce_in_order(op, values);
  std::vector<Gradient> gradients(values.begin(), values.end());
  return ops->reduce(op, PerReplica<Gradient>(std::move(gradients)), host_device())[0].dense();
}

// The number of reduced elements counts what is really there, also with uneven batches.
Tensor mean_over(const std::vector<Tensor>& values, const Axes& axes, CrossDeviceOps* ops) {
  std::vector<Tensor> sums;
  double count = 0;
  for (const Tensor& value : values) {
    const Shape normal = normal_axes(value, axes);
    double own = 1;
    for (const int64_t axis : normal) own *= static_cast<double>(value.size(axis));
    count += own;
    const bool integral = !value.is_floating_point() && !value.is_complex();
    sums.push_back((integral ? value.to(kFloat64) : value).sum(normal));
  }
  return reduce_across(ReduceOp::kSum, sums, ops).div(count);
}

// Of one replica the reduction may be its value itself.
Tensor apart(const Tensor& result, const std::vector<Tensor>& values) {
  const bool shares = std::any_of(values.begin(), values.end(), [&](const Tensor& value) {
    return value.has_storage() && result.is_alias_of(value);
  });
  return shares ? result.clone() : result;
}

}  // namespace

void check_cross_replica(const char* operation) {
  COHORT_CHECK_STATE(current_context().kind != ContextKind::kReplica, operation,
                     "expected cross-replica context, got a replica: inside strategy.run use "
                     "the replica context's all_reduce or all_gather");
}

void check_value_count(const char* operation, std::size_t got, int expected) {
  COHORT_CHECK_ARG(static_cast<int>(got) == expected, operation, "expected ", expected,
                   " values, one per replica, got ", got);
}

bool keeps_equal_values(ReduceOp op, int replicas) {
  return replicas == 1 || op == ReduceOp::kMean || op == ReduceOp::kMin || op == ReduceOp::kMax;
}

void check_keeps_equal_values(const char* operation, ReduceOp op, int replicas) {
  COHORT_CHECK_ARG(keeps_equal_values(op, replicas), operation,
                   "expected a PerReplica value, got one that is the same on each of ", replicas,
                   " replicas: it cannot be reduced with ", reduce_op_name(op),
                   "; use mean, or the value itself");
}

void throw_not_reducible(ReduceOp op, bool is_bool) {
  throw InvalidArgument(str_cat("[reduce] expected ", is_bool ? "integers" : "floating numbers",
                                " for a ", reduce_op_name(op), ", got ",
                                is_bool ? "bool" : "integers", "; convert them first"));
}

void throw_overflow(ReduceOp op, std::size_t bytes) {
  throw InvalidArgument(str_cat("[reduce] expected a ", reduce_op_name(op),
                                " that fits into the integers it is made of, of ", 8 * bytes,
                                " bits, got more; convert them to int64_t first"));
}

Tensor reduce_same(const char* operation, ReduceOp op, const Tensor& value, int replicas) {
  check_defined(operation, value);
  if (!keeps_equal_values(op, replicas) && value.dim() == 0 && value.item<double>() == 0) {
    return value;
  }
  check_keeps_equal_values(operation, op, replicas);
  return value;
}

Tensor reduce_tensors(ReduceOp op, const std::vector<Tensor>& values, const Axes& axes,
                      CrossDeviceOps* ops) {
  for (const Tensor& value : values) check_defined("[strategy.reduce] ", value);
  if (axes.empty()) return apart(reduce_across(op, values, ops), values);
  if (op == ReduceOp::kMean) return mean_over(values, axes, ops);
  std::vector<Tensor> reduced;
  for (const Tensor& value : values) {
    const Shape normal = normal_axes(value, axes);
    // A replica without rows has no smallest or largest element, and takes no part.
    const bool extreme = op == ReduceOp::kMin || op == ReduceOp::kMax;
    if (extreme && value.numel() == 0 && values.size() > 1) continue;
    reduced.push_back(reduce_axes(op, value, normal));
  }
  return reduce_across(op, reduced, ops);
}

Tensor gather_tensors(const std::vector<Tensor>& values, int64_t axis, CrossDeviceOps* ops) {
  ReductionToOneDevice in_place;
  CrossDeviceOps& chosen = ops != nullptr ? *ops : in_place;
  return chosen.gather(PerReplica<Tensor>(values), host_device(), axis)[0];
}

IndexedSlices reduce_slices(ReduceOp op, const std::vector<IndexedSlices>& values,
                            CrossDeviceOps* ops) {
  ReductionToOneDevice in_place;
  CrossDeviceOps& chosen = ops != nullptr ? *ops : in_place;
  std::vector<Gradient> gradients(values.begin(), values.end());
  return chosen.reduce(op, PerReplica<Gradient>(std::move(gradients)), host_device())[0].slices();
}

}  // namespace cohort::internal
