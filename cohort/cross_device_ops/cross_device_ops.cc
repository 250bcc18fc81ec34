// SPDX-License-Identifier: Apache-2.0
#include "cohort/cross_device_ops/cross_device_ops.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/collectives/local_reduce.h"

namespace cohort {
namespace {

void check_destinations(const char* operation, const Destinations& to) {
  COHORT_CHECK_ARG(!to.devices().empty(), operation,
                   "expected at least 1 destination device, got none");
}

void check_options(const char* operation, const CommunicationOptions& options) {
  COHORT_CHECK_ARG(options.bytes_per_pack >= 0, operation,
                   "expected bytes_per_pack to be 0 or more, got ", options.bytes_per_pack);
}

void check_values(const char* operation, const PerReplica<Gradient>& value) {
  COHORT_CHECK_ARG(value.size() > 0, operation, "expected a value per replica, got none");
  for (std::size_t i = 0; i < value.size(); ++i) {
    COHORT_CHECK_ARG(value[i].has_value(), operation,
                     "expected a value on every replica, got "
                     "none on replica ",
                     i);
    COHORT_CHECK_ARG(value[i].is_sparse() == value[0].is_sparse(), operation,
                     "expected dense or sparse values on all replicas, got both");
  }
}

template <class T>
Mirrored<T> copies_of(const T& value, std::size_t count, T (*copy)(const T&)) {
  std::vector<T> copies = {value};
  while (copies.size() < count) copies.push_back(copy(value));
  return Mirrored<T>(std::move(copies));
}

Tensor clone_tensor(const Tensor& t) { return t.clone(); }

Gradient clone_gradient(const Gradient& g) {
  if (!g.is_sparse()) return g.dense().clone();
  IndexedSlices rows = g.slices();
  rows.values = rows.values.clone();
  rows.indices = rows.indices.clone();
  return rows;
}

IndexedSlices join_rows(ReduceOp op, const PerReplica<Gradient>& value) {
  if (op != ReduceOp::kSum && op != ReduceOp::kMean) {
    throw Unimplemented(
        str_cat("[cross_device_ops.reduce] expected sum or mean of sparse values, "
                "got ",
                reduce_op_name(op), "; make them dense first"));
  }
  std::vector<Tensor> values;
  std::vector<Tensor> indices;
  for (const Gradient& g : value) {
    values.push_back(g.slices().values);
    indices.push_back(g.slices().indices);
  }
  Tensor joined = concat(values);
  if (op == ReduceOp::kMean) joined = joined.div(static_cast<double>(value.size()));
  return {
      .values = joined, .indices = concat(indices), .dense_shape = value[0].slices().dense_shape};
}

}  // namespace

Mirrored<Gradient> CrossDeviceOps::reduce(ReduceOp op, const PerReplica<Gradient>& value,
                                          const Destinations& to,
                                          const CommunicationOptions& options) {
  static constexpr const char* kOperation = "[cross_device_ops.reduce] ";
  check_destinations(kOperation, to);
  check_options(kOperation, options);
  check_values(kOperation, value);
  const at::NoGradGuard no_grad;
  return do_reduce(op, value, to, options);
}

std::vector<Mirrored<Gradient>> CrossDeviceOps::batch_reduce(ReduceOp op,
                                                             std::span<const ReduceItem> items,
                                                             const CommunicationOptions& options) {
  static constexpr const char* kOperation = "[cross_device_ops.batch_reduce] ";
  check_options(kOperation, options);
  for (const ReduceItem& item : items) {
    check_destinations(kOperation, item.destinations);
    check_values(kOperation, item.value);
  }
  const at::NoGradGuard no_grad;
  std::vector<Mirrored<Gradient>> results = do_batch_reduce(op, items, options);
  COHORT_CHECK_ARG(results.size() == items.size(), kOperation, "expected ", items.size(),
                   " results of do_batch_reduce, got ", results.size());
  return results;
}

Mirrored<Tensor> CrossDeviceOps::broadcast(const Tensor& value, const Destinations& to) {
  check_destinations("[cross_device_ops.broadcast] ", to);
  return do_broadcast(value, to);
}

Mirrored<Tensor> CrossDeviceOps::gather(const PerReplica<Tensor>& value, const Destinations& to,
                                        int64_t axis, const CommunicationOptions& options) {
  static constexpr const char* kOperation = "[cross_device_ops.gather] ";
  check_destinations(kOperation, to);
  check_options(kOperation, options);
  COHORT_CHECK_ARG(value.size() > 0, kOperation, "expected a value per replica, got none");
  const int64_t rank = value[0].dim();
  COHORT_CHECK_ARG(rank > 0, kOperation, "expected tensors with an axis to join, got scalars");
  COHORT_CHECK_ARG(axis >= -rank && axis < rank, kOperation, "expected an axis of rank ", rank,
                   ", got ", axis);
  const int64_t along = axis < 0 ? axis + rank : axis;
  for (std::size_t i = 1; i < value.size(); ++i) {
    Shape expected = shape_of(value[0]);
    Shape got = shape_of(value[i]);
    const bool same_rank = expected.size() == got.size();
    if (same_rank) got[static_cast<std::size_t>(along)] = expected[static_cast<std::size_t>(along)];
    COHORT_CHECK_ARG(same_rank && expected == got, kOperation,
                     "expected shapes that are equal but "
                     "for axis ",
                     axis, ", got ", bracketed(value[0].sizes()), " and ",
                     bracketed(value[i].sizes()), " on replica ", i);
  }
  return do_gather(value, to, along, options);
}

std::vector<Mirrored<Gradient>> CrossDeviceOps::do_batch_reduce(
    ReduceOp op, std::span<const ReduceItem> items, const CommunicationOptions& options) {
  std::vector<Mirrored<Gradient>> results;
  for (const ReduceItem& item : items) {
    results.push_back(do_reduce(op, item.value, item.destinations, options));
  }
  return results;
}

Mirrored<Tensor> CrossDeviceOps::do_broadcast(const Tensor& value, const Destinations& to) {
  return copies_of<Tensor>(value, to.devices().size(), clone_tensor);
}

Mirrored<Tensor> CrossDeviceOps::do_gather(const PerReplica<Tensor>& value, const Destinations& to,
                                           int64_t axis, const CommunicationOptions&) {
  return do_broadcast(concat(std::span(value.begin(), value.end()), axis), to);
}

ReductionToOneDevice::ReductionToOneDevice(std::optional<Device> reduce_to_device,
                                           AccumulationFn accumulate)
    : accumulate_(std::move(accumulate)) {
  if (reduce_to_device && reduce_to_device->kind() != DeviceKind::kCpu) {
    throw Unimplemented(str_cat("[reduction_to_one_device] expected a CPU, got ",
                                reduce_to_device->short_name(), ": GPUs are not supported yet"));
  }
}

Mirrored<Gradient> ReductionToOneDevice::do_reduce(ReduceOp op, const PerReplica<Gradient>& value,
                                                   const Destinations& to,
                                                   const CommunicationOptions&) {
  const std::size_t copies = to.devices().size();
  if (value[0].is_sparse())
    return copies_of<Gradient>(join_rows(op, value), copies, clone_gradient);
  std::vector<Tensor> dense;
  for (const Gradient& g : value) dense.push_back(g.dense());
  Tensor result;
  if (accumulate_ && (op == ReduceOp::kSum || op == ReduceOp::kMean)) {
    result = accumulate_(dense);
    if (op == ReduceOp::kMean) result = result.div(static_cast<double>(dense.size()));
  } else {
    result = internal::reduce_in_order(op, dense);
  }
  // Of one replica it is the input itself: a result never shares memory with a value.
  if (result.is_same(dense[0])) result = result.clone();
  return copies_of<Gradient>(result, copies, clone_gradient);
}

}  // namespace cohort
