// SPDX-License-Identifier: Apache-2.0
#include "cohort/reductions/local_reduce.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/reductions/internal/reduce_kernels.h"
#include "cohort/reductions/unsigned.h"
#include "cohort/runtime/device_backend.h"

namespace cohort::internal::reductions {
namespace {

template <class T>
void sum_range(void (*kernel)(const SumCall<T>&), const RangeReduction& range) {
  static_assert(sizeof(const T*) == sizeof(const void*));
  kernel({.sources = reinterpret_cast<const T* const*>(range.sources.data()),
          .source_count = range.sources.size(),
          .outs = reinterpret_cast<T* const*>(range.outs.data()),
          .out_count = range.outs.size(),
          .begin = static_cast<std::size_t>(range.begin),
          .end = static_cast<std::size_t>(range.end),
          .divisor = range.op == ReduceOp::kMean ? static_cast<T>(range.divisor) : T(1),
          .stream = range.stream});
}

void combine(ReduceOp op, Tensor& into, const Tensor& value) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      if (at::isBarebonesUnsignedType(into.scalar_type())) return add_unsigned(into, value);
      into.add_(value);
      return;
    case ReduceOp::kMin:
      at::minimum_out(into, into, value);
      return;
    case ReduceOp::kMax:
      at::maximum_out(into, into, value);
      return;
    case ReduceOp::kProduct:
      into.mul_(value);
      return;
  }
}

// The other dtypes and reductions, by LibTorch on views of the range.
void reduce_views(const RangeReduction& range) {
  const at::NoGradGuard no_grad;
  const auto item = static_cast<int64_t>(c10::elementSize(range.dtype));
  const int64_t offset = range.begin * item;
  const auto view = [&](const void* data) {
    // Only outputs are written.
    return at::from_blob(const_cast<std::byte*>(static_cast<const std::byte*>(data)) + offset,
                         {range.end - range.begin}, at::TensorOptions().dtype(range.dtype));
  };
  Tensor total = view(range.sources[0]).clone();
  for (const void* source : range.sources.subspan(1)) combine(range.op, total, view(source));
  if (range.op == ReduceOp::kMean) total.div_(range.divisor);
  for (void* out : range.outs) view(out).copy_(total);
}

}  // namespace

bool has_kernel(ReduceOp op, DType dtype) {
  const bool sums = op == ReduceOp::kSum || op == ReduceOp::kMean;
  return sums && (dtype == kFloat32 || dtype == kFloat64);
}

namespace {

class CpuRangeReducer final : public RangeReducer {
 public:
  void reduce(const RangeReduction& range) override {
    if (!has_kernel(range.op, range.dtype)) return reduce_views(range);
    if (range.dtype == kFloat32) return sum_range<float>(reduce_kernels().sum_float, range);
    sum_range<double>(reduce_kernels().sum_double, range);
  }
};

runtime::ByDeviceType<RangeReducer>& reducers() {
  static CpuRangeReducer for_cpus;
  static runtime::ByDeviceType<RangeReducer> table(&for_cpus, "range_reducer");
  return table;
}

}  // namespace

void reduce_range(const RangeReduction& range) {
  if (range.begin >= range.end) return;
  RangeReducer* const reducer = reducers().find(range.memory);
  COHORT_CHECK(reducer != nullptr, "values in memory that nobody reduces");
  reducer->reduce(range);
}

RangeReducer* exchange_range_reducer(c10::DeviceType type, RangeReducer* reducer) {
  return reducers().exchange(type, reducer);
}

void check_reducible(const char* operation, ReduceOp op, DType dtype) {
  const bool is_mean = op == ReduceOp::kMean;
  const bool is_complex = c10::isComplexType(dtype);
  COHORT_CHECK_ARG(!is_mean || c10::isFloatingType(dtype) || is_complex, operation,
                   "expected a floating type for mean, got ", dtype_name(dtype),
                   "; reduce with sum, or convert the values first");
  const bool extreme = op == ReduceOp::kMin || op == ReduceOp::kMax;
  COHORT_CHECK_ARG(dtype != kBool || extreme, operation, "expected numbers for ",
                   reduce_op_name(op),
                   ", got bool; reduce with max (any) or min (all), or convert the values first");
  COHORT_CHECK_ARG(!is_complex || !extreme, operation, "expected ordered numbers for ",
                   reduce_op_name(op), ", got ", dtype_name(dtype),
                   ", which have none; reduce their abs(), or their real and imaginary parts");
}

void check_reducible(const char* operation, ReduceOp op, const Tensor& value) {
  COHORT_CHECK_ARG(value.defined(), operation, "expected a tensor, got an empty handle");
  const bool is_reachable = reducers().find(value.device().type()) != nullptr;
  COHORT_CHECK_ARG(value.layout() == at::kStrided && is_reachable, operation,
                   "expected a dense tensor in the CPU's memory, got one on ", value.device().str(),
                   value.layout() == at::kStrided ? "" : " of another layout");
  check_reducible(operation, op, value.scalar_type());
}

Tensor in_a_row(const Tensor& value) {
  if (!value.is_conj() && !value.is_neg() && value.is_contiguous()) return value;
  return value.resolve_conj().resolve_neg().contiguous();
}

namespace {

constexpr const char* kReducePrefix = "[reduce] ";

bool is_apart(std::span<const Tensor> values) {
  return std::any_of(values.begin(), values.end(),
                     [&](const Tensor& t) { return t.device() != values[0].device(); });
}

// The same shape and dtype on every replica.
void check_alike(const char* operation, std::span<const Tensor> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    COHORT_CHECK_ARG(values[i].defined(), operation,
                     "expected a tensor on every replica, got an empty handle on replica ", i);
    check_same(operation, values[0], values[i], i);
  }
}

bool records(std::span<const Tensor> values) {
  return at::GradMode::is_enabled() &&
         std::any_of(values.begin(), values.end(),
                     [](const Tensor& t) { return t.requires_grad(); });
}

Tensor recorded(ReduceOp op, std::span<const Tensor> values) {
  Tensor total = values[0];
  for (const Tensor& value : values.subspan(1)) {
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kMean:
        total = total.add(value);
        break;
      case ReduceOp::kMin:
        total = at::minimum(total, value);
        break;
      case ReduceOp::kMax:
        total = at::maximum(total, value);
        break;
      case ReduceOp::kProduct:
        total = total.mul(value);
        break;
    }
  }
  return op == ReduceOp::kMean ? total.div(static_cast<double>(values.size())) : total;
}

}  // namespace

std::vector<Tensor> brought_to(c10::Device place, std::span<const Tensor> values) {
  std::vector<Tensor> out;
  out.reserve(values.size());
  for (const Tensor& value : values) {
    out.push_back(value.device() == place ? value : value.to(place));
  }
  return out;
}

void check_same(const char* operation, const Tensor& first, const Tensor& other,
                std::size_t replica) {
  COHORT_CHECK_ARG(other.sizes() == first.sizes(), operation, "expected shape ",
                   bracketed(first.sizes()), " on every replica, got ", bracketed(other.sizes()),
                   " on replica ", replica);
  COHORT_CHECK_ARG(other.scalar_type() == first.scalar_type(), operation, "expected dtype ",
                   dtype_name(first.scalar_type()), " on every replica, got ",
                   dtype_name(other.scalar_type()), " on replica ", replica);
}

std::vector<Tensor> reduce_to_copies(ReduceOp op, std::span<const Tensor> values,
                                     std::size_t copies) {
  COHORT_CHECK_ARG(!values.empty(), kReducePrefix, "expected at least 1 value, got none");
  check_alike(kReducePrefix, values);
  check_reducible(kReducePrefix, op, values[0]);
  if (is_apart(values)) {
    return reduce_to_copies(op, brought_to(values[0].device(), values), copies);
  }
  std::vector<Tensor> rows, results;
  std::vector<const void*> sources;
  std::vector<void*> outs;
  for (const Tensor& value : values) {
    rows.push_back(in_a_row(value));
    sources.push_back(rows.back().const_data_ptr());
  }
  for (std::size_t i = 0; i < copies; ++i) {
    results.push_back(at::empty(values[0].sizes(), values[0].options().requires_grad(false)));
    outs.push_back(results.back().mutable_data_ptr());
  }
  const auto arrays = static_cast<int64_t>(values.size() + copies);
  reduce_range({.op = op,
                .dtype = values[0].scalar_type(),
                .sources = sources,
                .outs = outs,
                .begin = 0,
                .end = values[0].numel(),
                .divisor = static_cast<double>(values.size()),
                .stream = static_cast<int64_t>(values[0].nbytes()) * arrays >= kStreamBytes,
                .memory = values[0].device().type()});
  return results;
}

Tensor reduce_in_order(ReduceOp op, std::span<const Tensor> values) {
  if (!records(values)) {
    if (values.size() != 1) return std::move(reduce_to_copies(op, values, 1)[0]);
    check_alike(kReducePrefix, values);
    check_reducible(kReducePrefix, op, values[0]);
    return values[0];
  }
  check_alike(kReducePrefix, values);
  check_reducible(kReducePrefix, op, values[0]);
  return recorded(op, is_apart(values) ? brought_to(values[0].device(), values)
                                       : std::vector<Tensor>(values.begin(), values.end()));
}

IndexedSlices join_slices(const char* operation, ReduceOp op,
                          std::span<const IndexedSlices> values) {
  if (op != ReduceOp::kSum && op != ReduceOp::kMean) {
    throw Unimplemented(str_cat(operation, "expected sum or mean of sparse values, got ",
                                reduce_op_name(op), "; make them dense first"));
  }
  std::vector<Tensor> rows, indices;
  for (std::size_t i = 0; i < values.size(); ++i) {
    COHORT_CHECK_ARG(values[i].values.defined() && values[i].indices.defined(), operation,
                     "expected rows and indices on every replica, got none on replica ", i);
    COHORT_CHECK_ARG(values[i].dense_shape == values[0].dense_shape, operation,
                     "expected rows of a table of shape ", bracketed(values[0].dense_shape),
                     " on every replica, got ", bracketed(values[i].dense_shape), " on replica ",
                     i);
    rows.push_back(values[i].values);
    indices.push_back(values[i].indices);
  }
  check_joinable(operation, indices, 0);
  check_joinable(operation, rows, 0);
  check_reducible(operation, op, rows[0]);
  const c10::Device place = rows[0].device();
  Tensor joined = concat(brought_to(place, rows));
  if (op == ReduceOp::kMean) joined = joined.div(static_cast<double>(values.size()));
  return {.values = joined,
          .indices = concat(brought_to(place, indices)),
          .dense_shape = values[0].dense_shape};
}

int64_t check_joinable(const char* operation, std::span<const Tensor> values, int64_t axis) {
  COHORT_CHECK_ARG(!values.empty(), operation, "expected a value per replica, got none");
  for (std::size_t i = 0; i < values.size(); ++i) {
    COHORT_CHECK_ARG(values[i].defined(), operation,
                     "expected a tensor on every replica, got an empty handle on replica ", i);
  }
  const int64_t rank = values[0].dim();
  COHORT_CHECK_ARG(rank > 0, operation,
                   "expected tensors with an axis to join, got a scalar; give it one with "
                   "unsqueeze(0)");
  COHORT_CHECK_ARG(axis >= -rank && axis < rank, operation, "expected an axis of rank ", rank,
                   ", got ", axis);
  const int64_t along = axis < 0 ? axis + rank : axis;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const Tensor& got = values[i];
    bool fits = got.dim() == rank;
    for (int64_t d = 0; fits && d < rank; ++d) {
      fits = d == along || got.size(d) == values[0].size(d);
    }
    COHORT_CHECK_ARG(fits, operation, "expected shapes that are equal but for axis ", axis,
                     ", got ", bracketed(values[0].sizes()), " and ", bracketed(got.sizes()),
                     " on replica ", i);
    COHORT_CHECK_ARG(got.scalar_type() == values[0].scalar_type(), operation, "expected dtype ",
                     dtype_name(values[0].scalar_type()), " on every replica, got ",
                     dtype_name(got.scalar_type()), " on replica ", i);
  }
  return along;
}

}  // namespace cohort::internal::reductions
