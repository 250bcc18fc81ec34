// SPDX-License-Identifier: Apache-2.0
//
// What kind of nest a type is, and the members of the fixed-size kinds.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/runtime/tensor.h"
#include "cohort/values/gradient.h"
#include "cohort/values/indexed_slices.h"

namespace cohort {

/// Specialise to make a class a nest that is no aggregate, with one of
///   static auto tie(T& t) { return std::tie(t.a, t.b); }         // fixed members
///   template <class U, class F>                                  // U is T or const T:
///   static void for_each_leaf(U& t, F&& f);                      // calls f on each leaf inside t
template <class T>
struct NestTraits {};

namespace internal::values {

/// Converts to any member, so that the number of a struct's members can be counted.
struct AnyMember {
  template <class T>
  operator T() const;  // NOLINT: implicit, and never defined
};
/// Stands for any function of a leaf.
struct AnyVisitor {
  template <class T>
  void operator()(T&) const {}
};

inline constexpr std::size_t kMaxMembers = 16;

template <class T, std::size_t... I>
constexpr bool braced_by(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyMember{})...}; };
}

/// Number of members of an aggregate; kMaxMembers + 1 if there are more.
template <class T, std::size_t N = kMaxMembers + 1>
constexpr std::size_t member_count() {
  if constexpr (N == 0 || braced_by<T>(std::make_index_sequence<N>())) {
    return N;
  } else {
    return member_count<T, N - 1>();
  }
}

#define COHORT_TIE_MEMBERS(count, ...)    \
  else if constexpr (kCount == (count)) { \
    auto& [__VA_ARGS__] = nest;           \
    return std::tie(__VA_ARGS__);         \
  }
/// The members of an aggregate as a tuple of references.
template <class T>
auto aggregate_members(T& nest) {
  constexpr std::size_t kCount = member_count<std::remove_const_t<T>>();
  if constexpr (kCount == 0) {
    return std::tuple<>();
  }
  COHORT_TIE_MEMBERS(1, a)
  COHORT_TIE_MEMBERS(2, a, b)
  COHORT_TIE_MEMBERS(3, a, b, c)
  COHORT_TIE_MEMBERS(4, a, b, c, d)
  COHORT_TIE_MEMBERS(5, a, b, c, d, e)
  COHORT_TIE_MEMBERS(6, a, b, c, d, e, f)
  COHORT_TIE_MEMBERS(7, a, b, c, d, e, f, g)
  COHORT_TIE_MEMBERS(8, a, b, c, d, e, f, g, h)
  COHORT_TIE_MEMBERS(9, a, b, c, d, e, f, g, h, i)
  COHORT_TIE_MEMBERS(10, a, b, c, d, e, f, g, h, i, j)
  COHORT_TIE_MEMBERS(11, a, b, c, d, e, f, g, h, i, j, k)
  COHORT_TIE_MEMBERS(12, a, b, c, d, e, f, g, h, i, j, k, l)
  COHORT_TIE_MEMBERS(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
  COHORT_TIE_MEMBERS(14, a, b, c, d, e, f, g, h, i, j, k, l, m, n)
  COHORT_TIE_MEMBERS(15, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
  COHORT_TIE_MEMBERS(16, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
}
#undef COHORT_TIE_MEMBERS

template <class T>
inline constexpr bool is_tuple_v = false;
template <class... A>
inline constexpr bool is_tuple_v<std::tuple<A...>> = true;
template <class A, class B>
inline constexpr bool is_tuple_v<std::pair<A, B>> = true;

// std::vector<bool> hands out proxies instead of references to its elements.
template <class T>
inline constexpr bool is_range_v = false;
template <class A>
inline constexpr bool is_range_v<std::vector<A>> = !std::is_same_v<A, bool>;
template <class A, std::size_t N>
inline constexpr bool is_range_v<std::array<A, N>> = true;

template <class T>
inline constexpr bool is_map_v = false;
template <class A, class... More>
inline constexpr bool is_map_v<std::map<std::string, A, More...>> = true;
template <class T>
inline constexpr bool is_unordered_map_v = false;
template <class A, class... More>
inline constexpr bool is_unordered_map_v<std::unordered_map<std::string, A, More...>> = true;
template <class A, class... More>
inline constexpr bool is_map_v<std::unordered_map<std::string, A, More...>> = true;
template <class T>
inline constexpr bool is_optional_v = false;
template <class A>
inline constexpr bool is_optional_v<std::optional<A>> = true;

template <class T>
inline constexpr bool is_leaf_v =
    std::is_arithmetic_v<T> || std::is_same_v<T, std::string> || std::is_same_v<T, Tensor> ||
    std::is_same_v<T, IndexedSlices> || std::is_same_v<T, Gradient>;

template <class T>
concept TiedByTraits = requires(T& t) {
  NestTraits<T>::tie(t);
};
template <class T>
concept WalkedByTraits = requires(T& t, AnyVisitor f) {
  NestTraits<T>::for_each_leaf(t, f);
};

enum class NestKind { kLeaf, kTied, kWalked, kRange, kMap, kOptional, kNone };

template <class T>
constexpr NestKind nest_kind() {
  if constexpr (is_leaf_v<T>) {
    return NestKind::kLeaf;
  } else if constexpr (TiedByTraits<T> || is_tuple_v<T>) {
    return NestKind::kTied;
  } else if constexpr (WalkedByTraits<T>) {
    return NestKind::kWalked;
  } else if constexpr (is_range_v<T>) {
    return NestKind::kRange;
  } else if constexpr (is_map_v<T>) {
    return NestKind::kMap;
  } else if constexpr (is_optional_v<T>) {
    return NestKind::kOptional;
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T>) {
    return member_count<T>() <= kMaxMembers ? NestKind::kTied : NestKind::kNone;
  } else {
    return NestKind::kNone;
  }
}

/// f(key, part) for the entries of a map, in the order of their keys.
template <class M, class F>
void for_each_entry(M& map, F&& f) {
  if constexpr (is_unordered_map_v<std::remove_const_t<M>>) {
    std::vector<decltype(&*map.begin())> entries;
    entries.reserve(map.size());
    for (auto& entry : map) entries.push_back(&entry);
    std::sort(entries.begin(), entries.end(),
              [](const auto* a, const auto* b) { return a->first < b->first; });
    for (auto* entry : entries) f(entry->first, entry->second);
  } else {
    for (auto& [key, part] : map) f(key, part);
  }
}

/// The members of a nest of kind kTied as a tuple of references, const where the nest is.
template <class T>
auto members_of(T& nest) {
  using U = std::remove_const_t<T>;
  if constexpr (TiedByTraits<U>) {
    // Traits tie a mutable object; nothing is written through a const one.
    auto tied = NestTraits<U>::tie(const_cast<U&>(nest));
    if constexpr (std::is_const_v<T>) {
      return std::apply([](auto&... m) { return std::tie(std::as_const(m)...); }, tied);
    } else {
      return tied;
    }
  } else if constexpr (is_tuple_v<U>) {
    return std::apply([](auto&... m) { return std::tie(m...); }, nest);
  } else {
    return aggregate_members(nest);
  }
}

}  // namespace internal::values
}  // namespace cohort
