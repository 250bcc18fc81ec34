// SPDX-License-Identifier: Apache-2.0
//
// Distributed values inside tuples, pairs, arrays, vectors, maps with string keys, optionals and
// aggregate templates: how such an argument becomes one replica's part of it, and what else is done
// to every PerReplica and Mirrored in a nest.
//
//   template <class T> struct Batch { T x; T y; double weight; };
//   Batch<PerReplica<Tensor>> all;
//   Batch<Tensor> mine = internal::values::unwrap(all, 1);
//
// An aggregate that is no template keeps its PerReplica members, which read as the replica's own
// value inside a replica anyway.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/values/per_replica.h"

namespace cohort::internal::values {

template <class T>
inline constexpr bool is_distributed_v = false;
template <class T>
inline constexpr bool is_distributed_v<PerReplica<T>> = true;
template <class T>
inline constexpr bool is_distributed_v<Mirrored<T>> = true;

/// An aggregate made from a template by types, which can be made again from other types.
template <class T>
struct AggregateTemplate {
  static constexpr bool kIs = false;
};
template <template <class...> class S, class... A>
requires(std::is_aggregate_v<S<A...>>) struct AggregateTemplate<S<A...>> {
  static constexpr bool kIs = true;
  using Arguments = std::tuple<A...>;
  template <class... B>
  using With = S<B...>;
};

template <class A>
constexpr bool holds_distributed();

template <class Tuple>
inline constexpr bool any_holds_distributed_v = false;
template <class... A>
inline constexpr bool any_holds_distributed_v<std::tuple<A...>> = (holds_distributed<A>() || ...);
template <class A, class B>
inline constexpr bool any_holds_distributed_v<std::pair<A, B>> =
    holds_distributed<A>() || holds_distributed<B>();

/// True if a PerReplica or Mirrored is inside that map_distributed finds.
template <class A>
constexpr bool holds_distributed() {
  if constexpr (is_distributed_v<A>) {
    return true;
  } else if constexpr (is_tuple_v<A>) {
    return any_holds_distributed_v<A>;
  } else if constexpr (is_range_v<A> || is_optional_v<A>) {
    return holds_distributed<typename A::value_type>();
  } else if constexpr (is_map_v<A>) {
    return holds_distributed<typename A::mapped_type>();
  } else if constexpr (AggregateTemplate<A>::kIs) {
    return any_holds_distributed_v<typename AggregateTemplate<A>::Arguments>;
  } else {
    return false;
  }
}

template <class V, class A>
decltype(auto) map_distributed(const V& visitor, const A& nest);

template <class V, class A>
using Mapped = std::remove_cvref_t<decltype(map_distributed(std::declval<const V&>(),
                                                            std::declval<const A&>()))>;

template <class V, class... A>
auto map_aggregate(const V& visitor, const auto& nest, std::type_identity<std::tuple<A...>>) {
  using Template = AggregateTemplate<std::remove_cvref_t<decltype(nest)>>;
  using Result = typename Template::template With<Mapped<V, A>...>;
  return std::apply(
      [&](const auto&... member) { return Result{map_distributed(visitor, member)...}; },
      members_of(nest));
}

template <class V, class A>
auto map_parts(const V& visitor, const A& nest) {
  if constexpr (is_range_v<A> && std::is_aggregate_v<A>) {  // std::array
    return std::apply(
        [&](const auto&... part) {
          return std::array<Mapped<V, typename A::value_type>, sizeof...(part)>{
              map_distributed(visitor, part)...};
        },
        nest);
  } else if constexpr (is_range_v<A>) {
    std::vector<Mapped<V, typename A::value_type>> out;
    out.reserve(nest.size());
    for (const auto& part : nest) out.push_back(map_distributed(visitor, part));
    return out;
  } else if constexpr (is_map_v<A>) {
    using Part = Mapped<V, typename A::mapped_type>;
    std::conditional_t<is_unordered_map_v<A>, std::unordered_map<std::string, Part>,
                       std::map<std::string, Part>>
        out;
    for_each_entry(nest, [&](const std::string& key, const auto& part) {
      out.emplace(key, map_distributed(visitor, part));
    });
    return out;
  } else {
    using Part = Mapped<V, typename A::value_type>;
    return nest ? std::optional<Part>(map_distributed(visitor, *nest)) : std::optional<Part>();
  }
}

template <class V, class... A>
auto map_tuple(const V& visitor, const std::tuple<A...>& nest) {
  return std::apply(
      [&](const A&... part) {
        return std::tuple<Mapped<V, A>...>(map_distributed(visitor, part)...);
      },
      nest);
}
template <class V, class A, class B>
auto map_tuple(const V& visitor, const std::pair<A, B>& nest) {
  return std::pair<Mapped<V, A>, Mapped<V, B>>(map_distributed(visitor, nest.first),
                                               map_distributed(visitor, nest.second));
}

/// The same nest, where visitor.distributed(x) stands for each PerReplica and Mirrored x, and
/// visitor.plain(x) for each largest part x without any.
template <class V, class A>
decltype(auto) map_distributed(const V& visitor, const A& nest) {
  if constexpr (is_distributed_v<A>) {
    return visitor.distributed(nest);
  } else if constexpr (!holds_distributed<A>()) {
    return visitor.plain(nest);
  } else if constexpr (is_tuple_v<A>) {
    return map_tuple(visitor, nest);
  } else if constexpr (AggregateTemplate<A>::kIs) {
    return map_aggregate(visitor, nest,
                         std::type_identity<typename AggregateTemplate<A>::Arguments>());
  } else {
    return map_parts(visitor, nest);
  }
}

/// Takes one replica's component of everything.
struct PartOf {
  const char* operation;
  int replica;
  int replicas;

  template <class T>
  const T& distributed(const PerReplica<T>& value) const {
    check_components(operation, value.size(), replicas);
    return value.begin()[replica];
  }
  template <class T>
  const T& distributed(const Mirrored<T>& value) const {
    if (value.size() == 1) return value.begin()[0];
    check_components(operation, value.size(), replicas);
    return value.begin()[replica];
  }
  template <class T>
  const T& plain(const T& value) const {
    return value;
  }
};

/// How an argument of Strategy::run arrives in this replica: PerReplica<T> and Mirrored<T> as the
/// replica's const T&, a nest that holds some as a nest of values, everything else as it is.
/// Errors: InvalidArgument unless a distributed argument has one component per local replica.
template <class A>
decltype(auto) unwrap(const A& arg, int replica, const char* operation = "strategy.run") {
  return map_distributed(PartOf{operation, replica, current_replica_count()}, arg);
}

}  // namespace cohort::internal::values
