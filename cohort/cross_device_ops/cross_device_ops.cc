// SPDX-License-Identifier: Apache-2.0
#include "cohort/cross_device_ops/cross_device_ops.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string>
#include <typeinfo>

#include "cohort/base/check.h"
#include "cohort/base/demangle.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/runtime/device_backend.h"

namespace cohort {
namespace {

void check_destinations(const char* operation, const Destinations& to) {
  COHORT_CHECK_ARG(!to.devices().empty(), operation,
                   "expected at least 1 destination device, got none");
  for (const Device& device : to.devices()) {
    internal::runtime::check_supported(operation, "destinations", device);
  }
}

void check_values(const char* operation, ReduceOp op, const PerReplica<Gradient>& value) {
  COHORT_CHECK_ARG(value.size() > 0, operation, "expected a value per replica, got none");
  for (std::size_t i = 0; i < value.size(); ++i) {
    COHORT_CHECK_ARG(value[i].has_value(), operation,
                     "expected a value on every replica, got none on replica ", i);
    COHORT_CHECK_ARG(value[i].is_sparse() == value[0].is_sparse(), operation,
                     "expected dense or sparse values on all replicas, got both: ",
                     value[0].is_sparse() ? "sparse" : "dense", " on replica 0, ",
                     value[i].is_sparse() ? "sparse" : "dense", " on replica ", i);
    if (value[i].is_sparse()) continue;
    internal::reductions::check_reducible(operation, op, value[i].dense());
    internal::reductions::check_same(operation, value[0].dense(), value[i].dense(), i);
  }
}

std::string class_of(const CrossDeviceOps& ops) {
  return internal::base::demangled(typeid(ops).name());
}

Shape shape_of_value(const Gradient& g) {
  return g.is_sparse() ? g.slices().dense_shape : shape_of(g.dense());
}
DType dtype_of_value(const Gradient& g) {
  return (g.is_sparse() ? g.slices().values : g.dense()).scalar_type();
}
std::string text_of(const Gradient& g) {
  if (!g.has_value()) return "none";
  if (g.is_sparse() && !g.slices().values.defined()) return "empty indexed slices";
  return str_cat(dtype_name(dtype_of_value(g)), " ", bracketed(shape_of_value(g)));
}

// Users write the hooks: what is missing or of another shape would skip an update in silence.
void check_result(const char* operation, const CrossDeviceOps& ops,
                  const PerReplica<Gradient>& value, const Destinations& to,
                  const Mirrored<Gradient>& result, const std::string* name = nullptr) {
  const auto subject = [name] {
    return name == nullptr ? std::string() : str_cat(" for variable \"", *name, "\"");
  };
  const std::size_t places = to.devices().size();
  COHORT_CHECK_ARG(result.size() == 1 || result.size() == places, operation, "expected ",
                   class_of(ops), " to return a result for each of ", places, " destinations",
                   subject(), ", got ", result.size());
  const Gradient& expected = value[0];
  for (const Gradient& got : result) {
    const bool fits = got.has_value() && (!got.is_sparse() || got.slices().values.defined()) &&
                      dtype_of_value(got) == dtype_of_value(expected) &&
                      shape_of_value(got) == shape_of_value(expected);
    COHORT_CHECK_ARG(fits, operation, "expected ", class_of(ops), " to return ", text_of(expected),
                     subject(), ", got ", text_of(got));
  }
}

void check_tensors(const char* operation, const CrossDeviceOps& ops, const Destinations& to,
                   const Shape& shape, const Mirrored<Tensor>& result) {
  const std::size_t places = to.devices().size();
  COHORT_CHECK_ARG(result.size() == 1 || result.size() == places, operation, "expected ",
                   class_of(ops), " to return a result for each of ", places, " destinations, got ",
                   result.size());
  for (const Tensor& got : result) {
    COHORT_CHECK_ARG(got.defined() && got.sizes() == c10::IntArrayRef(shape), operation,
                     "expected ", class_of(ops), " to return a tensor of shape ", bracketed(shape),
                     ", got ", got.defined() ? bracketed(got.sizes()) : "an empty handle");
  }
}

std::vector<Tensor> tensors_of(const Gradient& g) {
  std::vector<Tensor> all = {g.is_sparse() ? g.slices().values : g.dense()};
  if (g.is_sparse()) all.push_back(g.slices().indices);
  std::erase_if(all, [](const Tensor& t) { return !t.defined(); });
  return all;
}

// The values are the program's: whoever keeps a gradient keeps its numbers. Found by the counts of
// writes that tensors have.
class WritesToValues {
 public:
  void add(const PerReplica<Gradient>& value) {
    for (const Gradient& g : value) before_.push_back(writes_to(g));
  }
  void check(const char* operation, const CrossDeviceOps& ops, const PerReplica<Gradient>& value) {
    for (std::size_t r = 0; r < value.size(); ++r) {
      COHORT_CHECK_ARG(writes_to(value[r]) == before_[next_++], operation, "expected ",
                       class_of(ops), " to leave the values as they are, got that of replica ", r,
                       " written: reduce into a tensor of its own, e.g. a clone() of the first");
    }
  }

 private:
  static uint64_t writes_to(const Gradient& g) {
    uint64_t writes = 0;
    for (const Tensor& t : tensors_of(g)) writes += t.is_inference() ? 0 : t._version();
    return writes;
  }
  std::vector<uint64_t> before_;
  std::size_t next_ = 0;
};

// Hooks may return one of the values.
bool shares_memory(const Gradient& g, const PerReplica<Gradient>& value) {
  for (const Tensor& got : tensors_of(g)) {
    for (const Gradient& one : value) {
      for (const Tensor& given : tensors_of(one)) {
        if (got.is_alias_of(given)) return true;
      }
    }
  }
  return false;
}

Gradient clone_of(const Gradient& g) {
  if (!g.is_sparse()) return g.dense().clone();
  const IndexedSlices& rows = g.slices();
  return IndexedSlices{rows.values.clone(), rows.indices.clone(), rows.dense_shape};
}

void take_apart(Mirrored<Gradient>& result, const PerReplica<Gradient>& value) {
  const auto shares = [&](const Gradient& g) { return shares_memory(g, value); };
  if (std::none_of(result.begin(), result.end(), shares)) return;
  std::vector<Gradient> apart;
  for (const Gradient& g : result) apart.push_back(shares(g) ? clone_of(g) : g);
  result = Mirrored<Gradient>(std::move(apart));
}

// Nothing to reduce: the value itself, if it is where it should be.
bool is_one(const PerReplica<Gradient>& value, const Destinations& to) {
  return value.size() == 1 && to.devices().size() == 1;
}

using OnDevice = Tensor (*)(const Device& device, const Tensor& tensor);

Tensor on_device(OnDevice move, const Device& device, const Tensor& t) { return move(device, t); }

Gradient on_device(OnDevice move, const Device& device, const Gradient& g) {
  if (!g.is_sparse()) return move(device, g.dense());
  IndexedSlices rows = g.slices();
  rows.values = move(device, rows.values);
  rows.indices = move(device, rows.indices);
  return rows;
}

// The first one may be the value itself.
template <class T>
Mirrored<T> copies_of(const T& value, const Destinations& to) {
  std::vector<T> copies;
  for (const Device& device : to.devices()) {
    const OnDevice move =
        copies.empty() ? internal::runtime::tensor_on : internal::runtime::copy_on;
    copies.push_back(on_device(move, device, value));
  }
  return Mirrored<T>(std::move(copies));
}

}  // namespace

Mirrored<Gradient> CrossDeviceOps::reduce(ReduceOpArg op, const PerReplica<Gradient>& value,
                                          const Destinations& to,
                                          const CommunicationOptions& options) {
  static constexpr const char* kOperation = "[cross_device_ops.reduce] ";
  check_destinations(kOperation, to);
  internal::collectives::check_call_options(kOperation, options);
  check_values(kOperation, op, value);
  if (is_one(value, to)) return copies_of(value[0], to);
  const at::NoGradGuard no_grad;
  WritesToValues writes;
  writes.add(value);
  Mirrored<Gradient> result = do_reduce(op, value, to, options);
  writes.check(kOperation, *this, value);
  check_result(kOperation, *this, value, to, result);
  take_apart(result, value);
  return result;
}

std::vector<Mirrored<Gradient>> CrossDeviceOps::batch_reduce(ReduceOpArg op,
                                                             std::span<const ReduceItem> items,
                                                             const CommunicationOptions& options,
                                                             std::span<const std::string> names) {
  static constexpr const char* kOperation = "[cross_device_ops.batch_reduce] ";
  internal::collectives::check_call_options(kOperation, options);
  bool all_one = true;
  WritesToValues writes;
  for (const ReduceItem& item : items) {
    check_destinations(kOperation, item.destinations);
    check_values(kOperation, op, item.value);
    writes.add(item.value);
    all_one = all_one && is_one(item.value, item.destinations);
  }
  if (all_one) {
    std::vector<Mirrored<Gradient>> one_each;
    for (const ReduceItem& item : items) {
      one_each.push_back(copies_of(item.value[0], item.destinations));
    }
    return one_each;
  }
  const at::NoGradGuard no_grad;
  std::vector<Mirrored<Gradient>> results = do_batch_reduce(op, items, options);
  COHORT_CHECK_ARG(results.size() == items.size(), kOperation, "expected ", class_of(*this),
                   " to return ", items.size(), " results of do_batch_reduce, got ",
                   results.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    writes.check(kOperation, *this, items[i].value);
    check_result(kOperation, *this, items[i].value, items[i].destinations, results[i],
                 i < names.size() ? &names[i] : nullptr);
    take_apart(results[i], items[i].value);
  }
  return results;
}

Mirrored<Tensor> CrossDeviceOps::broadcast(const Tensor& value, const Destinations& to) {
  static constexpr const char* kOperation = "[cross_device_ops.broadcast] ";
  check_destinations(kOperation, to);
  COHORT_CHECK_ARG(value.defined(), kOperation, "expected a tensor, got an empty handle");
  const Mirrored<Tensor> copies = do_broadcast(value, to);
  check_tensors(kOperation, *this, to, shape_of(value), copies);
  std::vector<Tensor> apart;
  for (const Tensor& copy : copies) {
    apart.push_back(copy.is_alias_of(value) ? copy.clone() : copy);
  }
  return Mirrored<Tensor>(std::move(apart));
}

Mirrored<Tensor> CrossDeviceOps::gather(const PerReplica<Tensor>& value, const Destinations& to,
                                        int64_t axis, const CommunicationOptions& options) {
  static constexpr const char* kOperation = "[cross_device_ops.gather] ";
  check_destinations(kOperation, to);
  internal::collectives::check_call_options(kOperation, options);
  const int64_t along = internal::reductions::check_joinable(
      kOperation, std::span(value.begin(), value.size()), axis);
  Shape shape = shape_of(value[0]);
  shape[static_cast<std::size_t>(along)] = 0;
  for (const Tensor& part : value) shape[static_cast<std::size_t>(along)] += part.size(along);
  const Mirrored<Tensor> joined = do_gather(value, to, along, options);
  check_tensors(kOperation, *this, to, shape, joined);
  std::vector<Tensor> apart;
  for (const Tensor& copy : joined) {
    const bool shares = std::any_of(value.begin(), value.end(),
                                    [&](const Tensor& part) { return copy.is_alias_of(part); });
    apart.push_back(shares ? copy.clone() : copy);
  }
  return Mirrored<Tensor>(std::move(apart));
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
  return copies_of(value, to);
}

Mirrored<Tensor> CrossDeviceOps::do_gather(const PerReplica<Tensor>& value, const Destinations& to,
                                           int64_t axis, const CommunicationOptions&) {
  const std::vector<Tensor> parts =
      internal::reductions::brought_to(value[0].device(), std::span(value.begin(), value.size()));
  return do_broadcast(concat(parts, axis), to);
}

ReductionToOneDevice::ReductionToOneDevice(std::optional<Device> reduce_to_device,
                                           AccumulationFn accumulate)
    : device_(std::move(reduce_to_device)), accumulate_(std::move(accumulate)) {
  if (device_)
    internal::runtime::check_supported("[reduction_to_one_device] ", "devices", *device_);
}

Mirrored<Gradient> ReductionToOneDevice::do_reduce(ReduceOp op, const PerReplica<Gradient>& value,
                                                   const Destinations& to,
                                                   const CommunicationOptions&) {
  const Device& here = device_ ? *device_ : to.devices().front();
  std::vector<Gradient> values;
  for (const Gradient& g : value)
    values.push_back(on_device(internal::runtime::tensor_on, here, g));
  if (value[0].is_sparse()) {
    std::vector<IndexedSlices> rows;
    for (const Gradient& g : values) rows.push_back(g.slices());
    return copies_of<Gradient>(
        internal::reductions::join_slices("[cross_device_ops.reduce] ", op, rows), to);
  }
  std::vector<Tensor> dense;
  for (const Gradient& g : values) dense.push_back(g.dense());
  if (accumulate_ && (op == ReduceOp::kSum || op == ReduceOp::kMean)) {
    return copies_of<Gradient>(accumulated(op, dense), to);
  }
  std::vector<Gradient> results;
  for (const Tensor& copy :
       internal::reductions::reduce_to_copies(op, dense, to.devices().size())) {
    results.push_back(internal::runtime::tensor_on(to.devices()[results.size()], copy));
  }
  return Mirrored<Gradient>(std::move(results));
}

Tensor ReductionToOneDevice::accumulated(ReduceOp op, std::span<const Tensor> values) const {
  static constexpr const char* kOperation = "[reduction_to_one_device] ";
  Tensor sum = accumulate_(values);
  COHORT_CHECK_ARG(sum.defined() && sum.sizes() == values[0].sizes(), kOperation,
                   "expected the accumulation function to return a tensor of shape ",
                   bracketed(values[0].sizes()), ", got ",
                   sum.defined() ? bracketed(sum.sizes()) : "an empty handle");
  if (op == ReduceOp::kMean) return sum.div(static_cast<double>(values.size()));
  // It may have returned one of the values, and a result shares memory with none.
  const bool shares = std::any_of(values.begin(), values.end(),
                                  [&](const Tensor& value) { return sum.is_alias_of(value); });
  return shares ? sum.clone() : sum;
}

}  // namespace cohort
