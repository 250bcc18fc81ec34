// SPDX-License-Identifier: Apache-2.0
//
// How arguments of Strategy::run and merge_call meet the parameters of a user's function.
#pragma once

#include <functional>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/values/regroup.h"

namespace cohort::internal {

template <class Fn, class... A>
inline constexpr bool takes_unwrapped_v =
    std::is_invocable_v<const Fn&, decltype(unwrap(std::declval<const A&>(), 0))...>;

/// Calls fn with this replica's part of each argument; one tuple or dataset element spreads over
/// several parameters; who asks for the distributed arguments themselves gets them.
template <class Fn, class... A>
decltype(auto) call_in_replica(const Fn& fn, int replica, const A&... args) {
  static constexpr bool kTakesWhole = std::is_invocable_v<const Fn&, const A&...>;
  if constexpr (takes_unwrapped_v<Fn, A...>) {
    return fn(unwrap(args, replica)...);
  } else if constexpr (sizeof...(A) == 1 && !kTakesWhole) {
    using Part = std::remove_cvref_t<decltype(unwrap(args..., replica))>;
    if constexpr (std::is_same_v<Part, data::Element>) {
      static_assert(HasSignature<Fn>,
                    "[strategy.run] a generic lambda does not say what it takes: write "
                    "(const Tensor& x, const Tensor& y), one parameter per component");
      return call_with_element("[strategy.run]", fn, unwrap(args..., replica));
    } else {
      static_assert(
          is_tuple_v<Part>,
          "[strategy.run] fn cannot be called with this argument: a PerReplica<T> arrives "
          "as const T&, everything else as it is");
      return std::apply(fn, unwrap(args..., replica));
    }
  } else {
    static_assert(kTakesWhole,
                  "[strategy.run] fn cannot be called with these arguments: each PerReplica<T> "
                  "arrives as const T&, everything else as it is");
    return fn(args...);
  }
}

template <class Fn, class... A>
using CallResult = std::remove_cvref_t<decltype(call_in_replica(std::declval<const Fn&>(), 0,
                                                                std::declval<const A&>()...))>;

template <class R>
struct RunResultOf {
  using type = PerReplica<R>;
};
template <>
struct RunResultOf<void> {
  using type = void;
};
/// PerReplica of what fn returns as a whole; void stays void.
template <class Fn, class... A>
using RunResult = typename RunResultOf<CallResult<Fn, A...>>::type;

/// One address per type: tells apart the merge calls that replicas arrive with.
template <class T>
inline constexpr char type_tag = 0;

}  // namespace cohort::internal
