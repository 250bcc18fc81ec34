// SPDX-License-Identifier: Apache-2.0
//
// Dataset's verbs that take typed callables. The end of dataset.h includes it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cohort/base/callable.h"
#include "cohort/base/check.h"
#include "cohort/data/dataset.h"

namespace cohort::internal::data {

using ElementGenerator = std::function<std::optional<Element>()>;

/// What the function that from_generator was given makes elements of.
template <class Made>
struct Generated {
  static_assert(sizeof(Made) == 0,
                "[dataset.from_generator] expected a function that returns a range, std::optional, "
                "or a function that returns std::optional");
};
template <class T>
struct Generated<std::optional<T>> {
  using Value = T;
};
template <std::ranges::input_range R>
struct Generated<R> {
  using Value = std::ranges::range_value_t<R>;
};
template <class F>
requires std::is_invocable_v<F&>
struct Generated<F> : Generated<std::invoke_result_t<F&>> {
};
template <class Made>
using GeneratedValue = typename Generated<std::decay_t<Made>>::Value;

/// `next` returns optional values until the end.
template <class Value, class F>
ElementGenerator as_generator(F next) {
  return [next = std::make_shared<F>(std::move(next))]() -> std::optional<Element> {
    std::optional<Value> value = (*next)();
    if (!value) return std::nullopt;
    return to_element<Value>(*value);
  };
}

template <class R>
ElementGenerator range_generator(std::shared_ptr<R> range) {
  using Value = std::ranges::range_value_t<R>;
  struct Place {
    std::shared_ptr<R> range;
    std::optional<std::ranges::iterator_t<R>> at;
  };
  auto place = std::make_shared<Place>(Place{std::move(range), {}});
  return [place]() -> std::optional<Element> {
    if (!place->at) {
      place->at.emplace(std::ranges::begin(*place->range));
    } else {
      ++*place->at;
    }
    if (*place->at == std::ranges::end(*place->range)) return std::nullopt;
    return to_element<Value>(static_cast<Value>(**place->at));
  };
}

}  // namespace cohort::internal::data

namespace cohort::data {

template <class... T>
auto Dataset::as() const {
  static_assert(sizeof...(T) > 0,
                "[dataset.as] say what an element has: dataset.as<Tensor, Tensor>()");
  return internal::data::ConvertedRange(
      [node = node("as")] { return Dataset(node).make_iterator(); },
      [](const Element& element) { return element.as<T...>(); });
}

template <class F>
Dataset Dataset::map(F fn, MapOptions options) const {
  static_assert(internal::data::HasSignature<F>,
                "[dataset.map] a generic lambda does not say what it takes: write "
                "(const Tensor& x, const Tensor& y), one parameter per component, or "
                "(const Element& e)");
  if constexpr (internal::data::HasSignature<F>) {
    using Result = typename internal::data::Signature<std::decay_t<F>>::Result;
    static_assert(!std::is_void_v<Result>,
                  "[dataset.map] expected a function that returns the "
                  "new element, got one that returns void");
    if constexpr (!std::is_void_v<Result>) {
      internal::data::check_function<F>("[dataset.map]", spec_for("[dataset.map]"));
      internal::base::checked_function("[dataset.map]", fn);
      auto adapted = [fn = std::move(fn)](const Element& element) mutable {
        return internal::data::to_element<Result>(
            internal::data::call_with_element("[dataset.map]", fn, element));
      };
      return do_map(std::move(adapted), internal::data::spec_of_type<Result>(), options);
    }
  }
}

template <class F>
std::function<bool(const Element&)> Dataset::adapted_predicate(const char* operation,
                                                               F predicate) const {
  static_assert(internal::data::HasSignature<F>,
                "[dataset] a generic lambda does not say what it takes: write (const Tensor& x, "
                "const Tensor& y), one parameter per component, or (const Element& e)");
  if constexpr (internal::data::HasSignature<F>) {
    using Result = typename internal::data::Signature<std::decay_t<F>>::Result;
    constexpr bool kDecides = std::is_same_v<Result, bool> || std::is_same_v<Result, Tensor>;
    static_assert(kDecides, "[dataset] expected a predicate that returns bool or a 0-D tensor");
    internal::data::check_function<F>(operation, spec_for(operation));
    internal::base::checked_function(operation, predicate);
    return [operation, predicate = std::move(predicate)](const Element& element) mutable -> bool {
      if constexpr (std::is_same_v<Result, Tensor>) {
        return internal::data::integer_of(
            operation, internal::data::call_with_element(operation, predicate, element));
      } else if constexpr (!kDecides) {
        return false;
      } else {
        return internal::data::call_with_element(operation, predicate, element);
      }
    };
  }
}

template <class F>
Dataset Dataset::filter(F predicate) const {
  return do_filter(adapted_predicate("[dataset.filter]", std::move(predicate)));
}

template <class F>
Dataset Dataset::take_while(F predicate) const {
  return do_take_while(adapted_predicate("[dataset.take_while]", std::move(predicate)));
}

template <class Result, class F>
std::function<Result(const Element&)> Dataset::adapted(const char* operation, F fn) const {
  static_assert(internal::data::HasSignature<F>,
                "a generic lambda does not say what it takes: write (const Tensor& x, const "
                "Tensor& y), one parameter per component, or (const Element& e)");
  if constexpr (internal::data::HasSignature<F>) {
    using Returned = typename internal::data::Signature<std::decay_t<F>>::Result;
    static_assert(std::is_convertible_v<Returned, Result>,
                  "expected a function that returns a Dataset (flat_map, interleave) or an integer "
                  "(bucket_by_sequence_length, group_by_window, rejection_resample)");
    internal::data::check_function<F>(operation, spec_for(operation));
    internal::base::checked_function(operation, fn);
    return [operation, fn = std::move(fn)](const Element& element) mutable -> Result {
      return internal::data::call_with_element(operation, fn, element);
    };
  }
}

template <class F>
Dataset Dataset::flat_map(F fn, std::optional<ElementSpec> spec) const {
  auto call = adapted<Dataset>("[dataset.flat_map]", std::move(fn));
  return do_interleave("flat_map", [call](const Element& e) { return call(e).node(); },
                       {.cycle_length = 1, .spec = std::move(spec)});
}

template <class F>
Dataset Dataset::interleave(F fn, InterleaveOptions options) const {
  auto call = adapted<Dataset>("[dataset.interleave]", std::move(fn));
  return do_interleave(
      "interleave", [call](const Element& e) { return call(e).node(); }, std::move(options));
}

template <class F>
Dataset Dataset::bucket_by_sequence_length(F length, BucketOptions options) const {
  return do_bucket(adapted<int64_t>("[dataset.bucket_by_sequence_length]", std::move(length)),
                   options);
}

template <class K>
Dataset Dataset::group_by_window(K key, std::function<Dataset(int64_t, const Dataset&)> reduce,
                                 int64_t window_size) const {
  return do_group(adapted<int64_t>("[dataset.group_by_window]", std::move(key)), std::move(reduce),
                  window_size, nullptr);
}

template <class K>
Dataset Dataset::group_by_window(K key, std::function<Dataset(int64_t, const Dataset&)> reduce,
                                 std::function<int64_t(int64_t)> window_size) const {
  static constexpr const char* kOperation = "[dataset.group_by_window]";
  internal::base::checked_function(kOperation, window_size, "a function of the window's size");
  return do_group(adapted<int64_t>(kOperation, std::move(key)), std::move(reduce), 1,
                  std::move(window_size));
}

template <class F>
Dataset Dataset::rejection_resample(F class_function, std::vector<double> target_dist,
                                    ResampleOptions options) const {
  return do_resample(adapted<int64_t>("[dataset.rejection_resample]", std::move(class_function)),
                     std::move(target_dist), options);
}

template <class State, class F>
State Dataset::reduce(State initial, F fn) const {
  static_assert(internal::data::HasSignature<F>,
                "[dataset.reduce] a generic lambda does not say what it takes: write (State s, "
                "const Tensor& x, ...) or (State s, const Element& e)");
  using Parameters = typename internal::data::Signature<std::decay_t<F>>::Parameters;
  constexpr const char* kWhere = "[dataset.reduce]";
  constexpr std::size_t kComponents = std::tuple_size_v<Parameters> - 1;
  internal::base::checked_function(kWhere, fn);
  State state = std::move(initial);
  for (const Element& element : *this) {
    if constexpr (kComponents == 1) {
      using P = std::tuple_element_t<1, Parameters>;
      state = fn(std::move(state), internal::data::from_element<P>(kWhere, element));
    } else {
      internal::data::check_components(kWhere, kComponents, kComponents, element.spec());
      [&]<std::size_t... I>(std::index_sequence<I...>) {
        state = fn(std::move(state),
                   internal::data::from_element<std::tuple_element_t<I + 1, Parameters>>(
                       kWhere, element[I])...);
      }
      (std::make_index_sequence<kComponents>());
    }
  }
  return state;
}

template <class F>
Dataset Dataset::from_generator(F fn, std::optional<ElementSpec> spec) {
  using Made = std::invoke_result_t<F&>;
  using Value = internal::data::GeneratedValue<Made>;
  internal::base::checked_function("[dataset.from_generator]", fn);
  auto make = [fn = std::move(fn)]() mutable {
    if constexpr (internal::values::is_optional_v<Made>) {
      return internal::data::as_generator<Value>(fn);
    } else if constexpr (std::ranges::input_range<Made>) {
      return internal::data::range_generator(std::make_shared<std::decay_t<Made>>(fn()));
    } else {
      return internal::data::as_generator<Value>(internal::base::checked_function(
          "[dataset.from_generator]", fn(), "what the function returns"));
    }
  };
  return do_generate(std::move(make), spec ? *spec : internal::data::spec_of_type<Value>(),
                     kUnknownCardinality);
}

template <std::ranges::input_range R>
Dataset Dataset::from_range(R range, std::optional<ElementSpec> spec) {
  int64_t cardinality = kUnknownCardinality;
  if constexpr (std::ranges::sized_range<R>) {
    cardinality = static_cast<int64_t>(std::ranges::size(range));
  }
  auto shared = std::make_shared<R>(std::move(range));
  auto make = [shared, used = std::make_shared<std::atomic<bool>>(false)]() {
    if constexpr (!std::ranges::forward_range<R>) {
      COHORT_CHECK_STATE(!used->exchange(true),
                         "[dataset.from_range] expected one pass over a range that can be read "
                         "once, got another one");
      return internal::data::range_generator(shared);
    } else if constexpr (std::ranges::view<R>) {
      // Views may keep where they begin: every pass has a view of its own.
      return internal::data::range_generator(std::make_shared<R>(*shared));
    } else {
      return internal::data::range_generator(std::shared_ptr<const R>(shared));
    }
  };
  return do_generate(std::move(make),
                     spec ? *spec : internal::data::spec_of_type<std::ranges::range_value_t<R>>(),
                     cardinality);
}

}  // namespace cohort::data
