// SPDX-License-Identifier: Apache-2.0
//
// Reductions and joins of per-replica nests, leaf by leaf.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/collectives/options.h"
#include "cohort/values/gradient.h"
#include "cohort/values/nest.h"
#include "cohort/values/per_replica.h"

namespace cohort {

/// Axes to reduce away inside each replica first; negative ones count from the end.
class Axes {
 public:
  Axes() = default;
  Axes(int64_t axis) : axes_({axis}) {}                       // NOLINT: implicit
  Axes(std::initializer_list<int64_t> axes) : axes_(axes) {}  // NOLINT
  bool empty() const { return axes_.empty(); }
  const std::vector<int64_t>& values() const { return axes_; }

 private:
  std::vector<int64_t> axes_;
};

namespace internal {

/// FailedPrecondition in replica context of a real strategy.
void check_cross_replica(const char* operation);
void check_value_count(const char* operation, std::size_t got, int expected);

Tensor reduce_tensors(ReduceOp op, const std::vector<Tensor>& values, const Axes& axes);
Tensor gather_tensors(const std::vector<Tensor>& values, int64_t axis);
double reduce_numbers(ReduceOp op, const std::vector<double>& values);
IndexedSlices reduce_slices(ReduceOp op, const std::vector<IndexedSlices>& values);

template <class Leaf>
std::vector<Leaf> values_of(std::span<const Leaf* const> parts) {
  std::vector<Leaf> values;
  for (const Leaf* part : parts) values.push_back(*part);
  return values;
}

template <class T>
T reduce_nest(ReduceOp op, const PerReplica<T>& value, const Axes& axes) {
  const std::span<const T> components(value.begin(), value.size());
  return combine_leaves(components, [&]<class Leaf>(std::span<const Leaf* const> parts) -> Leaf {
    const std::vector<Leaf> leaves = values_of(parts);
    if constexpr (std::is_same_v<Leaf, Tensor>) {
      return reduce_tensors(op, leaves, axes);
    } else if constexpr (std::is_same_v<Leaf, IndexedSlices>) {
      return reduce_slices(op, leaves);
    } else if constexpr (std::is_arithmetic_v<Leaf>) {
      return static_cast<Leaf>(reduce_numbers(op, {leaves.begin(), leaves.end()}));
    } else {
      throw InvalidArgument(
          "[strategy.reduce] expected tensors, indexed slices or numbers, got text or gradients");
    }
  });
}

template <class T>
T gather_nest(const PerReplica<T>& value, int64_t axis) {
  const std::span<const T> components(value.begin(), value.size());
  return combine_leaves(components, [&]<class Leaf>(std::span<const Leaf* const> parts) -> Leaf {
    if constexpr (std::is_same_v<Leaf, Tensor>) {
      return gather_tensors(values_of(parts), axis);
    } else if constexpr (std::is_same_v<Leaf, IndexedSlices>) {
      throw Unimplemented("[strategy.gather] expected dense tensors, got indexed slices");
    } else {
      throw InvalidArgument(
          "[strategy.gather] expected tensors with an axis to join, got a number "
          "or text");
    }
  });
}

}  // namespace internal
}  // namespace cohort
