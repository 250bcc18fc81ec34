// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/sharded_variable.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/pulled_leaf.h"
#include "cohort/variables/internal/scatter.h"
#include "cohort/variables/internal/write.h"

namespace cohort {
namespace {

using internal::variables::Leaf;
using internal::variables::Scatter;
using internal::variables::VariableImpl;
using internal::variables::Write;

/// Over variables that exist. Threads: as they.
class ShardsImpl final : public VariableImpl {
 public:
  ShardsImpl(Description description, std::vector<Variable> shards)
      : VariableImpl(std::move(description)),
        shards_(std::move(shards)),
        leaf_(description_.shape, description_.dtype, description_.trainable) {}

  Tensor value() const override {
    if (leaf_.has_value() && !is_changed_ && leaf_.is_recorded()) return leaf_.tensor();
    const at::NoGradGuard no_grad;
    std::vector<Tensor> parts;
    for (const Variable& shard : shards_) parts.push_back(shard.value().detach());
    leaf_.fill(cohort::concat(parts));
    is_changed_ = false;
    return leaf_.tensor();
  }

  Tensor gather_rows(const Tensor& rows) const override {
    const at::NoGradGuard no_grad;
    const Tensor index = rows.to(kInt64);
    Shape shape = description_.shape;
    shape[0] = index.numel();
    Tensor out = empty(shape, description_.dtype);
    for_each_shard(index, [&](const Variable& shard, const Tensor& which, const Tensor& local) {
      out.index_copy_(0, which, shard.sparse_read(local).detach());
    });
    return out;
  }

  Tensor write(Write kind, const Tensor& x) override {
    check_value(internal::variables::operation_name(kind), x);
    is_changed_ = true;
    int64_t first = 0;
    for (const Variable& shard : shards_) {
      const int64_t rows = shard.shape()[0];
      shard.impl().write(kind, x.dim() == 0 ? x : x.narrow(0, first, rows));
      first += rows;
    }
    return value();
  }
  using VariableImpl::write;

  void scatter(Scatter kind, const IndexedSlices& slices) override {
    internal::variables::check_scattered(internal::variables::operation_name(kind), *this, slices);
    is_changed_ = true;
    const Tensor index = slices.indices.to(kInt64);
    for_each_shard(index, [&](const Variable& shard, const Tensor& which, const Tensor& local) {
      shard.impl().scatter(kind, {.values = slices.values.index_select(0, which),
                                  .indices = local,
                                  .dense_shape = shard.shape()});
    });
  }

  std::vector<Variable> components() override { return shards_; }
  Leaf& leaf() override { return leaf_.leaf(); }

 private:
  /// body(shard, which of the rows it has, the same as it counts them).
  template <class Body>
  void for_each_shard(const Tensor& rows, const Body& body) const {
    int64_t first = 0;
    for (const Variable& shard : shards_) {
      const int64_t end = first + shard.shape()[0];
      const Tensor which = rows.ge(first).logical_and(rows.lt(end)).nonzero().reshape({-1});
      if (which.numel() > 0) body(shard, which, rows.index_select(0, which) - first);
      first = end;
    }
  }

  const std::vector<Variable> shards_;
  mutable internal::coordinator::PulledLeaf leaf_;
  mutable bool is_changed_ = false;
};

std::shared_ptr<VariableImpl> impl_of(std::vector<Variable> shards, std::string name) {
  COHORT_CHECK_ARG(!shards.empty(), "[ShardedVariable] expected at least 1 shard, got none");
  VariableImpl::Description d;
  const Variable& model = shards.front();
  COHORT_CHECK_ARG(!model.shape().empty(), "[ShardedVariable] expected shards with rows, got \"",
                   model.name(), "\", a single number");
  d.shape = model.shape();
  d.shape[0] = 0;
  d.dtype = model.dtype();
  d.trainable = true;
  for (const Variable& shard : shards) {
    Shape other = shard.shape();
    const bool fits = shard.dtype() == d.dtype && other.size() == d.shape.size() &&
                      std::equal(other.begin() + 1, other.end(), d.shape.begin() + 1);
    COHORT_CHECK_ARG(
        fits, "[ShardedVariable] expected shards of one dtype and of shapes that differ ",
        "in the first axis alone, got ", dtype_name(d.dtype), " ", bracketed(model.shape()),
        " of \"", model.name(), "\" and ", dtype_name(shard.dtype()), " ", bracketed(other),
        " of \"", shard.name(), "\"");
    d.shape[0] += other[0];
    d.trainable = d.trainable && shard.trainable();
    d.devices.push_back(shard.device());
  }
  const std::string first = model.name();
  d.name = name.empty() ? first.substr(0, first.rfind("/part_0")) : std::move(name);
  return std::make_shared<ShardsImpl>(std::move(d), std::move(shards));
}

/// The places that a slice names on an axis of `size`.
std::vector<int64_t> places_of(const Slice& slice, int64_t size) {
  if (slice.is_number) {
    const int64_t at = *slice.begin < 0 ? *slice.begin + size : *slice.begin;
    if (at < 0 || at >= size) {
      throw Error(ErrorCode::kOutOfRange, str_cat("[ShardedVariable] expected an index in [", -size,
                                                  ", ", size, "), got ", *slice.begin));
    }
    return {at};
  }
  COHORT_CHECK_ARG(slice.step != 0, "[ShardedVariable] expected a step other than 0, got 0");
  const bool forward = slice.step > 0;
  const int64_t lowest = forward ? 0 : -1;
  const int64_t highest = forward ? size : size - 1;
  const auto place = [&](std::optional<int64_t> at, int64_t otherwise) {
    if (!at) return otherwise;
    return std::clamp(*at < 0 ? *at + size : *at, lowest, highest);
  };
  const int64_t begin = place(slice.begin, forward ? 0 : size - 1);
  const int64_t end = place(slice.end, forward ? size : -1);
  std::vector<int64_t> out;
  for (int64_t i = begin; forward ? i < end : i > end; i += slice.step) out.push_back(i);
  return out;
}

/// With as many ":" in the place of "..." as are missing.
std::vector<Slice> without_ellipsis(const std::vector<Slice>& index, std::size_t axes) {
  const auto count = [&](bool Slice::*what) {
    return static_cast<std::size_t>(std::count_if(
        index.begin(), index.end(), [what](const Slice& each) { return each.*what; }));
  };
  const std::size_t ellipses = count(&Slice::is_ellipsis);
  const std::size_t named = index.size() - ellipses - count(&Slice::is_new_axis);
  COHORT_CHECK_ARG(named <= axes, "[ShardedVariable] expected at most ", axes, " axes, got ",
                   named);
  COHORT_CHECK_ARG(ellipses <= 1, "[ShardedVariable] expected at most one ellipsis, got ",
                   ellipses);
  std::vector<Slice> out;
  for (const Slice& each : index) {
    if (each.is_ellipsis) {
      out.insert(out.end(), axes - named, Slice::all());
    } else {
      out.push_back(each);
    }
  }
  return out;
}

Tensor index_of(const std::vector<int64_t>& places) {
  return from_vector(places, {static_cast<int64_t>(places.size())});
}

}  // namespace

ShardedVariable::ShardedVariable(std::vector<Variable> shards, std::string name)
    : Variable(impl_of(std::move(shards), std::move(name))) {}

ShardedVariable::ShardedVariable(const Variable& variable) : Variable(variable) {
  COHORT_CHECK_ARG(variable.components().size() > 1 && variable.impl().leaf_count() == 1,
                   "[ShardedVariable] expected a variable that a partitioner has cut, got \"",
                   variable.name(), "\" in one piece");
}

Tensor ShardedVariable::operator[](const std::vector<Slice>& index) const {
  const std::vector<Slice> all = without_ellipsis(index, shape().size());
  const at::NoGradGuard no_grad;
  Tensor out;
  std::size_t axis = 0;
  for (const Slice& each : all) {
    if (each.is_new_axis) continue;
    const Tensor places = index_of(places_of(each, shape()[axis]));
    out = axis == 0 ? sparse_read(places) : out.index_select(static_cast<int64_t>(axis), places);
    ++axis;
  }
  if (axis == 0) out = value().clone();
  // From behind, so that the axes before keep their numbers.
  for (auto each = all.rbegin(); each != all.rend(); ++each) {
    if (each->is_new_axis) {
      out = out.unsqueeze(static_cast<int64_t>(axis));
    } else if (--axis; each->is_number) {
      out = out.squeeze(static_cast<int64_t>(axis));
    }
  }
  return out;
}

}  // namespace cohort
