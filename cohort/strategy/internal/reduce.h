// SPDX-License-Identifier: Apache-2.0
//
// Reductions and joins of per-replica nests, leaf by leaf.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/collectives/options.h"
#include "cohort/strategy/axes.h"
#include "cohort/values/gradient.h"
#include "cohort/values/nest.h"
#include "cohort/values/per_replica.h"

namespace cohort {

class CrossDeviceOps;
namespace data {
class Element;
}

namespace internal {

/// FailedPrecondition in replica context of a real strategy.
void check_cross_replica(const char* operation);
void check_value_count(const char* operation, std::size_t got, int expected);

/// True if the reduction of so many equal values is that value.
bool keeps_equal_values(ReduceOp op, int replicas);
/// For what is not distributed, but the same on each replica: InvalidArgument unless the reduction
/// is the value itself.
void check_keeps_equal_values(const char* operation, ReduceOp op, int replicas);
/// The reduction of a value that is the same on each replica; a zero is one for any operation.
/// Errors: as check_keeps_equal_values.
Tensor reduce_same(const char* operation, ReduceOp op, const Tensor& value, int replicas);

// ops: a user's own, through which everything goes; null: in place.
Tensor reduce_tensors(ReduceOp op, const std::vector<Tensor>& values, const Axes& axes,
                      CrossDeviceOps* ops = nullptr);
Tensor gather_tensors(const std::vector<Tensor>& values, int64_t axis,
                      CrossDeviceOps* ops = nullptr);
[[noreturn]] void throw_not_reducible(ReduceOp op, bool is_bool);
[[noreturn]] void throw_overflow(ReduceOp op, std::size_t bytes);

template <class N>
N reduce_two(ReduceOp op, N a, N b) {
  if (op == ReduceOp::kMin) return std::min(a, b);
  if (op == ReduceOp::kMax) return std::max(a, b);
  if constexpr (std::is_integral_v<N> && !std::is_same_v<N, bool>) {
    N out{};
    const bool too_much = op == ReduceOp::kProduct ? __builtin_mul_overflow(a, b, &out)
                                                   : __builtin_add_overflow(a, b, &out);
    if (too_much) throw_overflow(op, sizeof(N));
    return out;
  } else {
    return op == ReduceOp::kProduct ? a * b : a + b;
  }
}

/// As for tensors: a mean is one of floating numbers, and bools have a minimum and a maximum only.
/// Errors: InvalidArgument for others, and where an integer cannot hold the result.
template <class N>
N reduce_numbers(ReduceOp op, std::span<const N* const> values) {
  const bool extreme = op == ReduceOp::kMin || op == ReduceOp::kMax;
  if (std::is_same_v<N, bool> && !extreme) throw_not_reducible(op, true);
  if (std::is_integral_v<N> && op == ReduceOp::kMean) throw_not_reducible(op, false);
  N out = *values[0];
  for (const N* value : values.subspan(1)) out = reduce_two(op, out, *value);
  if constexpr (std::is_floating_point_v<N>) {
    if (op == ReduceOp::kMean) out /= static_cast<N>(values.size());
  }
  return out;
}
IndexedSlices reduce_slices(ReduceOp op, const std::vector<IndexedSlices>& values,
                            CrossDeviceOps* ops = nullptr);

template <class Leaf>
std::vector<Leaf> values_of(std::span<const Leaf* const> parts) {
  std::vector<Leaf> values;
  for (const Leaf* part : parts) values.push_back(*part);
  return values;
}

/// Leaf by leaf over elements of one structure. Errors: InvalidArgument for strings.
data::Element reduce_elements(ReduceOp op, std::span<const data::Element> elements,
                              const Axes& axes, CrossDeviceOps* ops);
/// Strings and rows of unlike lengths are joined along axis 0 only.
data::Element gather_elements(std::span<const data::Element> elements, int64_t axis,
                              CrossDeviceOps* ops);

template <class T>
T reduce_nest(ReduceOp op, const PerReplica<T>& value, const Axes& axes,
              CrossDeviceOps* ops = nullptr) {
  const std::span<const T> components(value.begin(), value.size());
  if constexpr (std::is_same_v<T, data::Element>)
    return reduce_elements(op, components, axes, ops);
  else
    return combine_leaves(components, [&]<class Leaf>(std::span<const Leaf* const> parts) -> Leaf {
      if constexpr (std::is_same_v<Leaf, Tensor>) {
        return reduce_tensors(op, values_of(parts), axes, ops);
      } else if constexpr (std::is_same_v<Leaf, IndexedSlices>) {
        return reduce_slices(op, values_of(parts), ops);
      } else if constexpr (std::is_arithmetic_v<Leaf>) {
        return reduce_numbers<Leaf>(op, parts);
      } else {
        throw InvalidArgument(
            "[strategy.reduce] expected tensors, indexed slices or numbers, got text or gradients");
      }
    });
}

template <class T>
T gather_nest(const PerReplica<T>& value, int64_t axis, CrossDeviceOps* ops = nullptr) {
  const std::span<const T> components(value.begin(), value.size());
  if constexpr (std::is_same_v<T, data::Element>)
    return gather_elements(components, axis, ops);
  else
    return combine_leaves(components, [&]<class Leaf>(std::span<const Leaf* const> parts) -> Leaf {
      if constexpr (std::is_same_v<Leaf, Tensor>) {
        return gather_tensors(values_of(parts), axis, ops);
      } else if constexpr (std::is_same_v<Leaf, IndexedSlices>) {
        throw Unimplemented("[strategy.gather] expected dense tensors, got indexed slices");
      } else {
        throw InvalidArgument(
            "[strategy.gather] expected tensors with an axis to join, got a number "
            "or text");
      }
    });
}

/// The same nest of what is not distributed, reduced over replicas that all have it.
template <class T>
T reduce_same_nest(ReduceOp op, const T& nest, const Axes& axes, int replicas) {
  static constexpr const char* kOperation = "[strategy.reduce] ";
  return map_leaves(nest, [&]<class Leaf>(const Leaf& leaf) -> Leaf {
    if constexpr (std::is_same_v<Leaf, Tensor>) {
      const Tensor same = reduce_same(kOperation, op, leaf, replicas);
      return axes.empty() ? same : reduce_tensors(op, {same}, axes);
    } else if constexpr (std::is_arithmetic_v<Leaf>) {
      if (leaf != Leaf()) check_keeps_equal_values(kOperation, op, replicas);
      return leaf;
    } else {
      check_keeps_equal_values(kOperation, op, replicas);
      return leaf;
    }
  });
}

}  // namespace internal
}  // namespace cohort
