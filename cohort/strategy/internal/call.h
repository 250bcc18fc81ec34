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
#include "cohort/strategy/internal/arguments.h"
#include "cohort/values/regroup.h"

namespace cohort::internal::strategy {

template <class Fn, class... A>
inline constexpr bool takes_unwrapped_v =
    std::is_invocable_v<const Fn&, decltype(values::unwrap(std::declval<const A&>(), 0))...>;

/// What an argument becomes in a replica.
template <class A>
using ArrivedPart = std::remove_cvref_t<decltype(values::unwrap(std::declval<const A&>(), 0))>;

/// One argument whose parts go to several parameters: a tuple or a dataset element.
template <class Fn, class... A>
inline constexpr bool takes_spread_v = false;
template <class Fn, class A>
inline constexpr bool takes_spread_v<Fn, A> = [] {
  using Part = ArrivedPart<A>;
  if constexpr (std::is_same_v<Part, cohort::data::Element>) {
    return data::HasSignature<Fn>;
  } else if constexpr (values::is_tuple_v<Part>) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return std::is_invocable_v<const Fn&, const std::tuple_element_t<I, Part>&...>;
    }
    (std::make_index_sequence<std::tuple_size_v<Part>>());
  } else {
    return false;
  }
}();

template <class Fn, class... A>
inline constexpr bool takes_run_arguments_v =
    takes_unwrapped_v<Fn, A...> || std::is_invocable_v<const Fn&, const A&...> ||
    takes_spread_v<Fn, A...>;

/// The number of a function's parameters; -1 of one with templates, which does not say.
template <class Fn>
constexpr int parameter_count() {
  if constexpr (data::HasSignature<Fn>) {
    return static_cast<int>(
        std::tuple_size_v<typename data::Signature<std::decay_t<Fn>>::Parameters>);
  } else {
    return -1;
  }
}

template <class... A>
inline constexpr bool is_one_element_v = false;
template <class A>
inline constexpr bool is_one_element_v<A> = std::is_same_v<ArrivedPart<A>, cohort::data::Element>;

/// A compiler's message that says in words why run cannot call the function.
template <class Fn, class... A>
constexpr void check_run_arguments() {
  if constexpr (!takes_run_arguments_v<Fn, A...>) {
    constexpr int kTakes = parameter_count<Fn>();
    constexpr bool kOther = kTakes >= 0 && kTakes != static_cast<int>(sizeof...(A));
    static_assert(!is_one_element_v<A...>,
                  "[strategy.run] a generic lambda does not say what it takes: write "
                  "(const Tensor& x, const Tensor& y), one parameter per component");
    static_assert(is_one_element_v<A...> || !kOther,
                  "[strategy.run] the function has another number of parameters than run gives it: "
                  "one for each argument after the function, or one for each part of a single "
                  "tuple");
    static_assert(is_one_element_v<A...> || kOther,
                  "[strategy.run] the function cannot be called with these arguments: a "
                  "PerReplica<T> or Mirrored<T> arrives as const T&, everything else as it is; a "
                  "parameter of type T& cannot take it");
  }
}

/// Calls fn with this replica's part of each argument; one tuple or dataset element spreads over
/// several parameters; who asks for the distributed arguments themselves gets them.
template <class Fn, class... A>
requires(takes_run_arguments_v<Fn, A...>) decltype(auto)
    call_in_replica(const Fn& fn, int replica, const A&... args) {
  if constexpr (takes_unwrapped_v<Fn, A...>) {
    return fn(values::unwrap(args, replica)...);
  } else if constexpr (std::is_invocable_v<const Fn&, const A&...>) {
    return fn(args...);
  } else if constexpr (is_one_element_v<A...>) {
    return data::call_with_element("[strategy.run]", fn, values::unwrap(args..., replica));
  } else {
    return std::apply(fn, values::unwrap(args..., replica));
  }
}

template <class Fn, class... A>
using CallResult = std::remove_cvref_t<decltype(call_in_replica(std::declval<const Fn&>(), 0,
                                                                std::declval<const A&>()...))>;

/// The same with the host's tensors among the arguments on the replica's device. By value: what the
/// function returns may refer to them.
template <class Fn, class... A>
requires(takes_run_arguments_v<Fn, A...>) CallResult<Fn, A...> call_on_device(const Device& device,
                                                                              const Fn& fn,
                                                                              int replica,
                                                                              const A&... args) {
  if constexpr (takes_unwrapped_v<Fn, A...>) {
    return fn(MovedArgument<A>(device, args, replica).pass()...);
  } else if constexpr (std::is_invocable_v<const Fn&, const A&...>) {
    return fn(args...);
  } else if constexpr (is_one_element_v<A...>) {
    return data::call_with_element("[strategy.run]", fn,
                                   MovedArgument<A...>(device, args..., replica).pass());
  } else {
    return std::apply(fn, MovedArgument<A...>(device, args..., replica).pass());
  }
}

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

}  // namespace cohort::internal::strategy
