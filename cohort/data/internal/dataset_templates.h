// SPDX-License-Identifier: Apache-2.0
//
// Dataset's verbs that take typed callables. The end of dataset.h includes it.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "cohort/data/dataset.h"

namespace cohort::data {

template <class F>
Dataset Dataset::map(F fn, MapOptions options) const {
  static_assert(internal::HasSignature<F>,
                "[dataset.map] a generic lambda does not say what it takes: write "
                "(const Tensor& x, const Tensor& y), one parameter per component, or "
                "(const Element& e)");
  if constexpr (internal::HasSignature<F>) {
    using Result = typename internal::Signature<std::decay_t<F>>::Result;
    static_assert(!std::is_void_v<Result>,
                  "[dataset.map] expected a function that returns the "
                  "new element, got one that returns void");
    internal::check_function<F>("[dataset.map]", element_spec());
    auto adapted = [fn = std::move(fn)](const Element& element) mutable {
      return internal::to_element<Result>(
          internal::call_with_element("[dataset.map]", fn, element));
    };
    return do_map(std::move(adapted), internal::spec_of_type<Result>(), options);
  }
}

template <class F>
Dataset Dataset::filter(F predicate) const {
  static_assert(internal::HasSignature<F>,
                "[dataset.filter] a generic lambda does not say what it takes: write "
                "(const Tensor& x, const Tensor& y), one parameter per component, or "
                "(const Element& e)");
  if constexpr (internal::HasSignature<F>) {
    using Result = typename internal::Signature<std::decay_t<F>>::Result;
    static_assert(std::is_same_v<Result, bool> || std::is_same_v<Result, Tensor>,
                  "[dataset.filter] expected a predicate that returns bool or a 0-D tensor");
    internal::check_function<F>("[dataset.filter]", element_spec());
    return do_filter([predicate = std::move(predicate)](const Element& element) mutable -> bool {
      if constexpr (std::is_same_v<Result, Tensor>) {
        return internal::integer_of(
            "[dataset.filter]",
            internal::call_with_element("[dataset.filter]", predicate, element));
      } else {
        return internal::call_with_element("[dataset.filter]", predicate, element);
      }
    });
  }
}

template <class Result, class F>
std::function<Result(const Element&)> Dataset::adapted(const char* operation, F fn) const {
  static_assert(internal::HasSignature<F>,
                "a generic lambda does not say what it takes: write (const Tensor& x, const "
                "Tensor& y), one parameter per component, or (const Element& e)");
  if constexpr (internal::HasSignature<F>) {
    using Returned = typename internal::Signature<std::decay_t<F>>::Result;
    static_assert(std::is_convertible_v<Returned, Result>,
                  "expected a function that returns a Dataset (flat_map, interleave) or an integer "
                  "(bucket_by_sequence_length)");
    internal::check_function<F>(operation, element_spec());
    return [operation, fn = std::move(fn)](const Element& element) mutable -> Result {
      return internal::call_with_element(operation, fn, element);
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

}  // namespace cohort::data
