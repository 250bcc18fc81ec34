// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/internal/reduce.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "cohort/collectives/communicator.h"
#include "cohort/collectives/worker_collectives.h"
#include "cohort/cross_device_ops/cross_device_ops.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/internal/own_ops.h"

namespace cohort::internal::strategy {
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

constexpr const char* kReduceVerb = "[strategy.reduce] ";

Tensor product_over(Tensor value, const Shape& axes) {
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) value = value.prod(*axis);
  return value;
}

// LibTorch finds extremes along axes of no unsigned type but uint8: those that an int64 holds as
// such.
Tensor unsigned_extreme(ReduceOp op, const Tensor& value, const Shape& axes) {
  const DType dtype = value.scalar_type();
  COHORT_CHECK_ARG(dtype != DType::UInt64, kReduceVerb,
                   "expected values of at most 32 bits, or of ", "int64, for ", reduce_op_name(op),
                   " along axes, got uint64; convert them first");
  const Tensor wide = value.to(kInt64);
  return (op == ReduceOp::kMin ? at::amin(wide, axes) : at::amax(wide, axes)).to(dtype);
}

Tensor reduce_axes(ReduceOp op, const Tensor& value, const Shape& axes) {
  const bool is_extreme = op == ReduceOp::kMin || op == ReduceOp::kMax;
  if (is_extreme && at::isBarebonesUnsignedType(value.scalar_type())) {
    return unsigned_extreme(op, value, axes);
  }
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

// Through a user's ops, to the host.
template <class Value>
Gradient reduce_by_ops(ReduceOp op, const std::vector<Value>& values, CrossDeviceOps& ops,
                       collectives::Communicator* others) {
  const ReduceItem item{PerReplica<Gradient>(std::vector<Gradient>(values.begin(), values.end())),
                        runtime::host_device()};
  if (others == nullptr) return ops.reduce(op, item.value, item.destinations)[0];
  return reduce_through(kReduceVerb, ops, *others, op, std::span(&item, 1))[0][0];
}

Tensor reduce_all(ReduceOp op, const std::vector<Tensor>& values, const Reach& reach) {
  if (reach.ops != nullptr) return reduce_by_ops(op, values, *reach.ops, reach.others).dense();
  if (reach.others != nullptr)
    return collectives::reduce_across(*reach.others, kReduceVerb, op, values);
  return reductions::reduce_in_order(op, values);
}

// The number of reduced elements counts what is really there, also with uneven batches.
Tensor mean_over(const std::vector<Tensor>& values, const Axes& axes, const Reach& reach) {
  std::vector<Tensor> sums;
  int64_t count = 0;
  for (const Tensor& value : values) {
    const Shape normal = normal_axes(value, axes);
    int64_t own = 1;
    for (const int64_t axis : normal) own *= value.size(axis);
    count += own;
    const bool integral = !value.is_floating_point() && !value.is_complex();
    sums.push_back((integral ? value.to(kFloat64) : value).sum(normal));
  }
  const Tensor sum = reduce_all(ReduceOp::kSum, sums, reach);
  if (reach.others != nullptr) count = collectives::sum_across(*reach.others, count);
  return sum.div(static_cast<double>(count));
}

// What leaves every other number as it is, as the minimum or maximum of no rows.
Tensor no_extreme(ReduceOp op, const Tensor& value, const Shape& axes) {
  const bool least = op == ReduceOp::kMin;
  const DType dtype = value.scalar_type();
  Tensor out = zeros(shape_of(value.sum(axes)), dtype);
  if (at::isFloatingType(dtype)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return out.fill_(least ? infinity : -infinity);
  }
  if (dtype == kBool) return out.fill_(least);
  const bool is_signed = c10::isSignedType(dtype);
  const auto bits = static_cast<int>(8 * c10::elementSize(dtype)) - (is_signed ? 1 : 0);
  const auto greatest = static_cast<int64_t>((uint64_t{1} << bits) - 1);
  return out.fill_(least ? greatest : is_signed ? -greatest - 1 : 0);
}

// A replica without rows has no smallest or largest element, and takes no part.
bool has_rows(const Tensor& value, const Shape& axes) {
  return std::all_of(axes.begin(), axes.end(), [&](int64_t axis) { return value.size(axis) > 0; });
}

// Of the replicas that have rows; what workers without any bring to the reduction.
std::vector<Tensor> extremes_here(ReduceOp op, std::vector<Tensor> reduced, const Tensor& value,
                                  const Axes& axes, const Reach& reach) {
  const auto here = static_cast<int64_t>(reduced.size());
  const int64_t all = reach.others == nullptr ? here : collectives::sum_across(*reach.others, here);
  COHORT_CHECK_ARG(all > 0, kReduceVerb, "expected at least 1 row for a ", reduce_op_name(op),
                   ", got none on any replica");
  if (reduced.empty()) reduced.push_back(no_extreme(op, value, normal_axes(value, axes)));
  return reduced;
}

// Of one replica the reduction may be its value itself.
Tensor apart(const Tensor& result, const std::vector<Tensor>& values) {
  const bool shares = std::any_of(values.begin(), values.end(), [&](const Tensor& value) {
    return value.has_storage() && result.is_alias_of(value);
  });
  return shares ? result.clone() : result;
}

// The same of rows.
IndexedSlices apart(const IndexedSlices& result, const std::vector<IndexedSlices>& values) {
  const auto is_of = [](const Tensor& t, const Tensor& value) {
    return t.defined() && value.defined() && t.is_alias_of(value);
  };
  const bool shares = std::any_of(values.begin(), values.end(), [&](const IndexedSlices& value) {
    return is_of(result.values, value.values) || is_of(result.indices, value.indices);
  });
  return shares ? copy_of_slices(result) : result;
}

}  // namespace

IndexedSlices copy_of_slices(const IndexedSlices& rows) {
  return {.values = rows.values.clone(),
          .indices = rows.indices.clone(),
          .dense_shape = rows.dense_shape};
}

void check_cross_replica(const char* operation) {
  COHORT_CHECK_STATE(runtime::current_context().kind != runtime::ContextKind::kReplica, operation,
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
                                " that fits into integers of ", 8 * bytes,
                                " bits, as the values are, got a greater one; convert "
                                "them to int64_t first"));
}

Tensor reduce_same(const char* operation, ReduceOp op, const Tensor& value, int replicas) {
  runtime::check_defined(operation, value);
  if (!keeps_equal_values(op, replicas) && value.dim() == 0 && value.item<double>() == 0) {
    return value;
  }
  check_keeps_equal_values(operation, op, replicas);
  return value;
}

std::vector<std::byte> gather_numbers(collectives::Communicator& others,
                                      std::span<const std::byte> here, std::size_t size,
                                      const char* kind, ReduceOp op) {
  collectives::check_same_on_workers(others, kReduceVerb, "numbers",
                                     str_cat("a ", reduce_op_name(op), " of ", here.size() / size,
                                             " ", kind, " of ", size, " bytes"));
  return collectives::gather_bytes(others, kReduceVerb, here);
}

void check_same_structure(const char* operation, const Reach& reach, const std::string& text) {
  if (reach.others == nullptr) return;
  collectives::check_same_on_workers(*reach.others, operation, "structure of values", text);
}

namespace {

Tensor reduce_where_they_are(ReduceOp op, const std::vector<Tensor>& values, const Axes& axes,
                             const Reach& reach) {
  if (axes.empty()) return apart(reduce_all(op, values, reach), values);
  if (op == ReduceOp::kMean) return mean_over(values, axes, reach);
  const bool extreme = op == ReduceOp::kMin || op == ReduceOp::kMax;
  std::vector<Tensor> reduced;
  for (const Tensor& value : values) {
    const Shape normal = normal_axes(value, axes);
    if (extreme) reductions::check_reducible(kReduceVerb, op, value.scalar_type());
    if (extreme && !has_rows(value, normal)) continue;
    reduced.push_back(reduce_axes(op, value, normal));
  }
  if (extreme) reduced = extremes_here(op, std::move(reduced), values[0], axes, reach);
  return reduce_all(op, reduced, reach);
}

}  // namespace

Tensor reduce_tensors(ReduceOp op, const std::vector<Tensor>& values, const Axes& axes,
                      const Reach& reach) {
  for (const Tensor& value : values) runtime::check_defined(kReduceVerb, value);
  return runtime::tensor_on(runtime::host_device(), reduce_where_they_are(op, values, axes, reach));
}

Tensor gather_tensors(const std::vector<Tensor>& values, int64_t axis, const Reach& reach) {
  if (reach.others != nullptr) {
    static constexpr const char* kOperation = "[strategy.gather] ";
    for (const Tensor& value : values) runtime::check_defined(kOperation, value);
    const int64_t along = reductions::check_joinable(kOperation, values, axis);
    return collectives::gather_across(*reach.others, kOperation, cohort::concat(values, along),
                                      along);
  }
  ReductionToOneDevice in_place;
  CrossDeviceOps& chosen = reach.ops != nullptr ? *reach.ops : in_place;
  return chosen.gather(PerReplica<Tensor>(values), runtime::host_device(), axis)[0];
}

IndexedSlices reduce_slices(ReduceOp op, const std::vector<IndexedSlices>& values,
                            const Reach& reach) {
  if (reach.others != nullptr && reach.ops == nullptr) {
    return collectives::join_across(*reach.others, kReduceVerb, op, values);
  }
  ReductionToOneDevice in_place;
  CrossDeviceOps& chosen = reach.ops != nullptr ? *reach.ops : in_place;
  return apart(reduce_by_ops(op, values, chosen, reach.others).slices(), values);
}

std::vector<Mirrored<Gradient>> reduce_through(const char* operation, CrossDeviceOps& ops,
                                               collectives::Communicator& others, ReduceOp op,
                                               std::span<const ReduceItem> items,
                                               const CommunicationOptions& options) {
  const bool mean = op == ReduceOp::kMean;
  for (const ReduceItem& item : items) {
    const Gradient& first = item.value[0];
    if (first.has_value() && !first.is_sparse())
      reductions::check_reducible(operation, op, first.dense());
  }
  const ReduceOp step = mean ? ReduceOp::kSum : op;
  const std::vector<Mirrored<Gradient>> here = ops.batch_reduce(step, items, options);
  std::vector<Mirrored<Gradient>> out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const double count =
        static_cast<double>(others.size()) * static_cast<double>(items[i].value.size());
    const Gradient& local = here[i][0];
    const std::size_t copies = items[i].destinations.devices().size();
    if (local.is_sparse()) {
      IndexedSlices joined =
          collectives::join_across(others, operation, step, std::array{local.slices()});
      if (mean) joined.values = joined.values.div(count);
      out.push_back(Mirrored<Gradient>(std::vector<Gradient>(copies, Gradient(joined))));
      continue;
    }
    const Tensor total =
        collectives::reduce_across(others, operation, step, std::array{local.dense()});
    if (mean) collectives::divide_by_count(total, count);
    std::vector<Gradient> each;
    for (const Tensor& copy : ops.broadcast(total, items[i].destinations)) each.emplace_back(copy);
    out.push_back(Mirrored<Gradient>(std::move(each)));
  }
  return out;
}

}  // namespace cohort::internal::strategy
