// SPDX-License-Identifier: Apache-2.0
//
// Values with one component for each local replica, in replica order: what Strategy::run returns
// and distributed datasets yield.
//
//   PerReplica<Tensor> loss = strategy.run(step, batch);
//   auto [sum, logits] = strategy.run(step_with_two_results, batch);    // tuples unzip
//   PerReplica<Tensor> part = strategy.run(step_with_struct, batch).get(&Out::loss);
//
// Plain data: Strategy::reduce and gather make one value of the components.
#pragma once

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/runtime/replica_scope.h"
#include "cohort/values/internal/components.h"
#include "cohort/values/internal/print.h"
#include "cohort/values/nest.h"

namespace cohort {

/// One value for each local replica, in replica order. Immutable; a copy shares the components.
/// Threads: immutable. TF: tf.distribute.DistributedValues (PerReplica).
template <class T>
class PerReplica {
 public:
  /// No components; reading it is an error.
  PerReplica() = default;
  /// Errors: at use, if the number is not that of the strategy's local replicas.
  explicit PerReplica(std::vector<T> values) : parts_(std::move(values)) {}
  /// Internal: with the devices where they are.
  static PerReplica placed(std::vector<T> values, internal::values::DeviceList devices) {
    PerReplica out(std::move(values));
    out.devices_ = std::move(devices);
    return out;
  }

  std::size_t size() const { return parts_.size(); }
  /// Errors: Error of kOutOfRange.
  const T& operator[](std::size_t local_replica) const& {
    return parts_.at(local_replica, "per_replica");
  }
  /// Of a temporary, such as a result of run: a copy, for its components go with it.
  T operator[](std::size_t local_replica) && { return parts_.at(local_replica, "per_replica"); }
  const T* begin() const { return parts_.data(); }
  const T* end() const { return parts_.data() + parts_.size(); }
  /// Where a component is: CPU:1 for that of replica 1. Errors: Error of kOutOfRange;
  ///         FailedPrecondition unless a strategy made the value, or map() out of such a one.
  Device device(std::size_t local_replica) const {
    return internal::values::device_of_component("per_replica", devices_, local_replica, size());
  }
  /// Internal.
  const internal::values::DeviceList& device_list() const { return devices_; }

  /// True if all components are one object: the same tensor, equal numbers, strings or other
  /// values with ==, and nests of these leaf by leaf. Two tensors of equal numbers are not one
  /// object; what has no == is uniform only where there is one component.
  bool uniform() const {
    for (std::size_t i = 1; i < size(); ++i) {
      if (!internal::values::same_object(begin()[0], begin()[i])) return false;
    }
    return size() > 0;
  }

  /// In a replica its component; in cross-replica context the one component or uniform value.
  /// Errors: FailedPrecondition in cross-replica context if there are several;
  ///         InvalidArgument in a replica if there are not as many components as replicas.
  const T& local() const& {
    if (const int replica = current_replica(); replica >= 0) {
      internal::values::check_components("per_replica", size(), current_replica_count());
      return begin()[replica];
    }
    if (!uniform()) internal::values::throw_not_one_value(size());
    return begin()[0];
  }
  T local() const&& { return static_cast<const PerReplica&>(*this).local(); }
  /// local(): with one replica run returns a bare value in TensorFlow. A copy, which
  /// `const T& loss = strategy.run(step)` keeps alive.
  operator T() const { return local(); }  // NOLINT: implicit
  /// local(), for the operators of tensor.h.
  Tensor as_tensor() const requires std::same_as<T, Tensor> { return local(); }

  /// One field of a struct.
  template <class M, class C>
  requires(std::is_object_v<M>&& std::is_base_of_v<C, T>) PerReplica<M> get(M C::*member)
  const {
    return map([member](const T& value) { return value.*member; });
  }

  /// f(component) of each component, on the calling thread.
  template <class F>
  auto map(F f) const {
    using Result = std::remove_cvref_t<std::invoke_result_t<F&, const T&>>;
    static_assert(!std::is_void_v<Result>, "[per_replica.map] expected a function with a result");
    std::vector<Result> out;
    out.reserve(size());
    for (const T& value : *this) out.push_back(f(value));
    return PerReplica<Result>::placed(std::move(out), devices_);
  }

 private:
  internal::values::Components<T> parts_;
  internal::values::DeviceList devices_;
};

/// The same value on every destination, e.g. the result of a reduction: reads anywhere and never
/// loses information. Immutable; a copy shares the components.
/// Threads: immutable. TF: tf.distribute.DistributedValues (Mirrored).
template <class T>
class Mirrored {
 public:
  /// No copies; reading it is an error.
  Mirrored() = default;
  /// One for each local replica, or one for all of them.
  explicit Mirrored(std::vector<T> copies) : parts_(std::move(copies)) {}
  /// Internal: with the devices where they are.
  static Mirrored placed(std::vector<T> copies, internal::values::DeviceList devices) {
    Mirrored out(std::move(copies));
    out.devices_ = std::move(devices);
    return out;
  }

  std::size_t size() const { return parts_.size(); }
  /// Errors: Error of kOutOfRange.
  const T& operator[](std::size_t i) const& { return parts_.at(i, "mirrored"); }
  /// Of a temporary: a copy.
  T operator[](std::size_t i) && { return parts_.at(i, "mirrored"); }
  const T* begin() const { return parts_.data(); }
  const T* end() const { return parts_.data() + parts_.size(); }
  /// Where a copy is. Errors: as PerReplica::device.
  Device device(std::size_t i) const {
    return internal::values::device_of_component("mirrored", devices_, i, size());
  }

  /// In a replica its copy, or the only one; in cross-replica context the first.
  /// Errors: FailedPrecondition if there is none; InvalidArgument in a replica if there are
  ///         several, but not as many as replicas.
  const T& local() const& {
    if (size() == 0) internal::values::throw_not_one_value(0);
    const int replica = current_replica();
    if (replica < 0 || size() == 1) return begin()[0];
    internal::values::check_components("mirrored", size(), current_replica_count());
    return begin()[replica];
  }
  T local() const&& { return static_cast<const Mirrored&>(*this).local(); }
  operator T() const { return local(); }  // NOLINT: implicit; a copy
  /// local(), for the operators of tensor.h.
  Tensor as_tensor() const requires std::same_as<T, Tensor> { return local(); }

 private:
  internal::values::Components<T> parts_;
  internal::values::DeviceList devices_;
};

/// As TensorFlow prints them: "PerReplica:{\n  0: ...,\n  1: ...\n}".
template <class T>
std::ostream& operator<<(std::ostream& out, const PerReplica<T>& value) {
  return internal::values::print_components(out, "PerReplica", value);
}
template <class T>
std::ostream& operator<<(std::ostream& out, const Mirrored<T>& value) {
  return internal::values::print_components(out, "Mirrored", value);
}

/// Structured bindings: a PerReplica of tuples reads as a tuple of PerReplicas.
template <std::size_t I, class... A>
PerReplica<std::tuple_element_t<I, std::tuple<A...>>> get(const PerReplica<std::tuple<A...>>& p) {
  return p.map([](const std::tuple<A...>& value) { return std::get<I>(value); });
}
template <std::size_t I, class A, class B>
PerReplica<std::tuple_element_t<I, std::pair<A, B>>> get(const PerReplica<std::pair<A, B>>& p) {
  return p.map([](const std::pair<A, B>& value) { return std::get<I>(value); });
}

}  // namespace cohort

template <class... A>
struct std::tuple_size<cohort::PerReplica<std::tuple<A...>>>
    : std::integral_constant<std::size_t, sizeof...(A)> {};
template <std::size_t I, class... A>
struct std::tuple_element<I, cohort::PerReplica<std::tuple<A...>>> {
  using type = cohort::PerReplica<std::tuple_element_t<I, std::tuple<A...>>>;
};
template <class A, class B>
struct std::tuple_size<cohort::PerReplica<std::pair<A, B>>>
    : std::integral_constant<std::size_t, 2> {};
template <std::size_t I, class A, class B>
struct std::tuple_element<I, cohort::PerReplica<std::pair<A, B>>> {
  using type = cohort::PerReplica<std::tuple_element_t<I, std::pair<A, B>>>;
};
