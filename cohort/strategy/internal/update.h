// SPDX-License-Identifier: Apache-2.0
//
// Types of StrategyExtended::update, and how its arguments travel from replicas to their meeting.
#pragma once

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/runtime/meeting.h"
#include "cohort/strategy/internal/call.h"
#include "cohort/values/regroup.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::internal::strategy {

/// What one component gets of an argument.
template <class A>
using PartType = values::Mapped<values::PartOf, A>;

template <class First, class Fn, class... A>
struct UpdateReturnOf {
  using type = std::remove_cvref_t<std::invoke_result_t<const Fn&, First, const PartType<A>&...>>;
};
template <class Fn, class... A>
struct UpdateReturnOf<void, Fn, A...> {
  using type = std::remove_cvref_t<std::invoke_result_t<const Fn&, const PartType<A>&...>>;
};
/// What fn returns for one component. First: the type of the component, void without one.
template <class First, class Fn, class... A>
using UpdateReturn = typename UpdateReturnOf<First, Fn, A...>::type;

template <class R>
struct UpdateResultFor {
  using type = Mirrored<R>;
};
template <>
struct UpdateResultFor<void> {
  using type = void;
};
template <class R>
using UpdateResultOf = typename UpdateResultFor<R>::type;
template <class First, class Fn, class... A>
using UpdateResult = UpdateResultOf<UpdateReturn<First, Fn, A...>>;

/// One replica's arguments of an update by fn.
template <class Fn, class... A>
class UpdateArguments {
 public:
  template <class... B>
  explicit UpdateArguments(const Variable& variable, const B&... values)
      : variable_(variable), values_(values...) {}

  /// f(const PerReplica<A>&...) with the arguments of all replicas.
  /// Errors: FailedPrecondition if the replicas update different variables.
  template <class F>
  static auto regroup(runtime::Brought<UpdateArguments> all, const F& f) {
    for (std::size_t i = 1; i < all.size(); ++i) {
      COHORT_CHECK_STATE(all[i].variable_ == all[0].variable_,
                         "[strategy.update] expected every replica to update the same variable, "
                         "got ",
                         variables::label(all[0].variable_.impl()), " on replica 0 and ",
                         variables::label(all[i].variable_.impl()), " on replica ", i);
    }
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      [[maybe_unused]] const auto values =
          [&]<std::size_t J>(std::integral_constant<std::size_t, J>) {
            std::vector<std::tuple_element_t<J, std::tuple<A...>>> out;
            for (std::size_t i = 0; i < all.size(); ++i) out.push_back(std::get<J>(all[i].values_));
            return PerReplica<std::tuple_element_t<J, std::tuple<A...>>>(std::move(out));
          };
      return f(values(std::integral_constant<std::size_t, I>())...);
    }
    (std::index_sequence_for<A...>());
  }

 private:
  const Variable variable_;
  const std::tuple<A...> values_;
};

}  // namespace cohort::internal::strategy
