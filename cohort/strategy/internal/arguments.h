// SPDX-License-Identifier: Apache-2.0
//
// Tensors of the host among the arguments of Strategy::run, on their way to a replica on a GPU.
//
// They are found in tuples, vectors, maps, optionals, dataset elements, classes with NestTraits and
// aggregate templates of types; in a struct of the program's own they stay where they are.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/data/core/element.h"
#include "cohort/runtime/device.h"
#include "cohort/values/regroup.h"

namespace cohort::internal::strategy {

template <class T>
constexpr bool holds_tensors();

template <class Tuple>
inline constexpr bool any_holds_tensors_v = false;
template <class... A>
inline constexpr bool any_holds_tensors_v<std::tuple<A...>> =
    (holds_tensors<std::remove_cvref_t<A>>() || ...);
template <class A, class B>
inline constexpr bool any_holds_tensors_v<std::pair<A, B>> =
    holds_tensors<std::remove_cvref_t<A>>() || holds_tensors<std::remove_cvref_t<B>>();

/// True if move_tensors finds some in a value of this type, and can write them.
template <class T>
constexpr bool holds_tensors() {
  if constexpr (std::is_same_v<T, Tensor> || std::is_same_v<T, IndexedSlices> ||
                std::is_same_v<T, Gradient> || std::is_same_v<T, cohort::data::Element>) {
    return true;
  } else if constexpr (values::is_leaf_v<T> || !std::is_copy_constructible_v<T>) {
    return false;
  } else if constexpr (values::TiedByTraits<T> || values::WalkedByTraits<T>) {
    return true;
  } else if constexpr (values::is_tuple_v<T>) {
    return any_holds_tensors_v<T>;
  } else if constexpr (values::is_range_v<T> || values::is_optional_v<T>) {
    return holds_tensors<typename T::value_type>();
  } else if constexpr (values::is_map_v<T>) {
    return holds_tensors<typename T::mapped_type>();
  } else if constexpr (values::AggregateTemplate<T>::kIs) {
    return any_holds_tensors_v<typename values::AggregateTemplate<T>::Arguments>;
  } else {
    return false;
  }
}

void move_leaf(const Device& device, Tensor& t);
void move_leaf(const Device& device, IndexedSlices& rows);
void move_leaf(const Device& device, Gradient& gradient);
void move_leaf(const Device& device, cohort::data::Element& element);
void note_leaf(const Tensor& t);
void note_leaf(const IndexedSlices& rows);
void note_leaf(const Gradient& gradient);
void note_leaf(const cohort::data::Element& element);

/// Calls f for what of these kinds is in a value of a type that holds tensors.
template <class T, class F>
void for_each_moved(T& value, const F& f) {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, Tensor> || std::is_same_v<U, IndexedSlices> ||
                std::is_same_v<U, Gradient> || std::is_same_v<U, cohort::data::Element>) {
    f(value);
  } else if constexpr (!holds_tensors<U>()) {
    return;
  } else if constexpr (values::WalkedByTraits<U>) {
    NestTraits<U>::for_each_leaf(value, [&](auto& leaf) { for_each_moved(leaf, f); });
  } else if constexpr (values::TiedByTraits<U> || values::is_tuple_v<U> ||
                       values::AggregateTemplate<U>::kIs) {
    std::apply([&](auto&... member) { (for_each_moved(member, f), ...); },
               values::members_of(value));
  } else if constexpr (values::is_range_v<U>) {
    for (auto& part : value) for_each_moved(part, f);
  } else if constexpr (values::is_map_v<U>) {
    for (auto& [key, part] : value) for_each_moved(part, f);
  } else if constexpr (values::is_optional_v<U>) {
    if (value) for_each_moved(*value, f);
  }
}

/// One argument on its way into a replica on a GPU, as values::unwrap gives it, but with its host
/// tensors there.
template <class A>
class MovedArgument {
  using Arrived = decltype(values::unwrap(std::declval<const A&>(), 0));
  using Part = std::remove_cvref_t<Arrived>;

 public:
  MovedArgument(const Device& device, const A& argument, int replica)
      : part_(values::unwrap(argument, replica)) {
    if constexpr (holds_tensors<Part>()) {
      for_each_moved(part_, [&](auto& leaf) { move_leaf(device, leaf); });
    }
  }
  /// As unwrap's result. Owns: what it refers to.
  decltype(auto) pass() {
    if constexpr (std::is_reference_v<Arrived>) {
      return static_cast<const Part&>(part_);
    } else {
      return static_cast<Part&&>(part_);
    }
  }

 private:
  std::conditional_t<holds_tensors<Part>(), Part, Arrived> part_;
};

/// Tells that the calling replica's work reads what another one has made.
template <class T>
void note_tensors(const T& value) {
  if constexpr (holds_tensors<T>()) {
    for_each_moved(value, [](const auto& leaf) { note_leaf(leaf); });
  }
}

/// The device of a replica to which arguments are moved; null for CPUs.
inline const Device* device_to_move_to(const std::vector<Device>& devices, int replica) {
  const Device& device = devices[static_cast<std::size_t>(replica)];
  return device.kind() == DeviceKind::kCpu ? nullptr : &device;
}

}  // namespace cohort::internal::strategy
