// SPDX-License-Identifier: Apache-2.0
//
// Reductions and joins of per-replica nests, leaf by leaf.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/collectives/options.h"
#include "cohort/collectives/worker_layout.h"
#include "cohort/strategy/axes.h"
#include "cohort/values/gradient.h"
#include "cohort/values/nest.h"
#include "cohort/values/per_replica.h"

namespace cohort {

class CrossDeviceOps;
namespace data {
class Element;
}

namespace internal::strategy {

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

/// What reductions and joins go through.
struct Reach {
  CrossDeviceOps* ops = nullptr;                ///< A user's own; null: in place.
  collectives::Communicator* others = nullptr;  ///< The other workers; null: there are none.
};

/// fn(), as a turn of the communicator where there are other workers.
template <class Fn>
auto together(collectives::Communicator* others, const char* operation, const Fn& fn) {
  if (others == nullptr) return fn();
  std::optional<decltype(fn())> out;
  collectives::take_turn(*others, operation, [&] { out.emplace(fn()); });
  return std::move(*out);
}

Tensor reduce_tensors(ReduceOp op, const std::vector<Tensor>& values, const Axes& axes,
                      const Reach& reach = {});
Tensor gather_tensors(const std::vector<Tensor>& values, int64_t axis, const Reach& reach = {});
/// The numbers of all workers' replicas, each of `size` bytes. `kind`: what they are.
/// Errors: FailedPrecondition for numbers of another kind or size, or for another reduction.
std::vector<std::byte> gather_numbers(collectives::Communicator& others,
                                      std::span<const std::byte> here, std::size_t size,
                                      const char* kind, ReduceOp op);
/// Errors: FailedPrecondition that names both structures if another worker's is not `text`.
void check_same_structure(const char* operation, const Reach& reach, const std::string& text);
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
/// Of all workers.
template <class N>
N reduce_numbers_of_all(ReduceOp op, std::span<const N* const> values, const Reach& reach) {
  if (reach.others == nullptr) return reduce_numbers<N>(op, values);
  std::vector<std::byte> here(values.size() * sizeof(N));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::memcpy(here.data() + i * sizeof(N), values[i], sizeof(N));
  }
  const char* const kind = std::is_same_v<N, bool>       ? "bools"
                           : std::is_floating_point_v<N> ? "floating numbers"
                           : std::is_signed_v<N>         ? "integers"
                                                         : "unsigned integers";
  const std::vector<std::byte> bytes = gather_numbers(*reach.others, here, sizeof(N), kind, op);
  const std::size_t count = bytes.size() / sizeof(N);
  const auto numbers = std::make_unique<N[]>(count);
  std::memcpy(numbers.get(), bytes.data(), bytes.size());
  std::vector<const N*> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(&numbers[i]);
  return reduce_numbers<N>(op, all);
}
IndexedSlices reduce_slices(ReduceOp op, const std::vector<IndexedSlices>& values,
                            const Reach& reach = {});

template <class Leaf>
std::vector<Leaf> values_of(std::span<const Leaf* const> parts) {
  std::vector<Leaf> values;
  for (const Leaf* part : parts) values.push_back(*part);
  return values;
}

/// Leaf by leaf over elements of one structure. Errors: InvalidArgument for strings.
cohort::data::Element reduce_elements(ReduceOp op, std::span<const cohort::data::Element> elements,
                                      const Axes& axes, const Reach& reach);
/// Strings and rows of unlike lengths are joined along axis 0 only. Errors: Unimplemented.
cohort::data::Element gather_elements(std::span<const cohort::data::Element> elements, int64_t axis,
                                      const Reach& reach);

template <class T>
T reduce_nest(ReduceOp op, const PerReplica<T>& value, const Axes& axes, const Reach& reach = {}) {
  const std::span<const T> components(value.begin(), value.size());
  if constexpr (std::is_same_v<T, cohort::data::Element>) {
    return reduce_elements(op, components, axes, reach);
  } else {
    check_same_structure("[strategy.reduce] ", reach, values::structure_text(components.front()));
    return values::combine_leaves(components,
                                  [&]<class Leaf>(std::span<const Leaf* const> parts) -> Leaf {
                                    if constexpr (std::is_same_v<Leaf, Tensor>) {
                                      return reduce_tensors(op, values_of(parts), axes, reach);
                                    } else if constexpr (std::is_same_v<Leaf, IndexedSlices>) {
                                      return reduce_slices(op, values_of(parts), reach);
                                    } else if constexpr (std::is_arithmetic_v<Leaf>) {
                                      return reduce_numbers_of_all<Leaf>(op, parts, reach);
                                    } else {
                                      throw InvalidArgument(
                                          "[strategy.reduce] expected tensors, indexed slices or "
                                          "numbers, got text or gradients");
                                    }
                                  });
  }
}

template <class T>
T gather_nest(const PerReplica<T>& value, int64_t axis, const Reach& reach = {}) {
  const std::span<const T> components(value.begin(), value.size());
  if constexpr (std::is_same_v<T, cohort::data::Element>) {
    return gather_elements(components, axis, reach);
  } else {
    check_same_structure("[strategy.gather] ", reach, values::structure_text(components.front()));
    return values::combine_leaves(
        components, [&]<class Leaf>(std::span<const Leaf* const> parts) -> Leaf {
          if constexpr (std::is_same_v<Leaf, Tensor>) {
            return gather_tensors(values_of(parts), axis, reach);
          } else if constexpr (std::is_same_v<Leaf, IndexedSlices>) {
            throw Unimplemented("[strategy.gather] expected dense tensors, got indexed slices");
          } else {
            throw InvalidArgument(
                "[strategy.gather] expected tensors with an axis to join, got a number "
                "or text");
          }
        });
  }
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

/// The same where every worker has a value of its own: reduced over the workers.
template <class T>
T reduce_worker_nest(ReduceOp op, const T& nest, const Axes& axes, const Reach& reach) {
  static constexpr const char* kOperation = "[strategy.reduce] ";
  check_same_structure(kOperation, reach, values::structure_text(nest));
  return map_leaves(nest, [&]<class Leaf>(const Leaf& leaf) -> Leaf {
    if constexpr (std::is_same_v<Leaf, Tensor>) {
      return reduce_tensors(op, {leaf}, axes, reach);
    } else if constexpr (std::is_same_v<Leaf, IndexedSlices>) {
      return reduce_slices(op, {leaf}, reach);
    } else if constexpr (std::is_arithmetic_v<Leaf>) {
      const Leaf* const own[] = {&leaf};
      return reduce_numbers_of_all<Leaf>(op, own, reach);
    } else {
      throw InvalidArgument(
          "[strategy.reduce] expected tensors, indexed slices or numbers, got text or gradients");
    }
  });
}

}  // namespace internal::strategy
}  // namespace cohort
