// SPDX-License-Identifier: Apache-2.0
//
// Elements meet functions: typed callables on one side, dynamic elements on the other.
//
//   (const Tensor&, ...)   the components in order; trailing std::optional<T> may be missing
//   (const Struct&)        the element converted, also a std::tuple
//   (const Element&)       the element as it is
//   (const Dataset&)       an element that is a dataset, or a tuple of datasets, zipped
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/base/callable.h"
#include "cohort/base/check.h"
#include "cohort/data/core/element.h"
#include "cohort/values/nest.h"

namespace cohort::internal::data {

// --- Signatures ----------------------------------------------------------------------------------

template <class F>
struct Signature : Signature<decltype(&F::operator())> {};
template <class R, class... A>
struct Signature<R(A...)> {
  using Result = std::remove_cvref_t<R>;
  using Parameters = std::tuple<std::remove_cvref_t<A>...>;
};
template <class R, class... A>
struct Signature<R(A...) noexcept> : Signature<R(A...)> {};
template <class R, class... A>
struct Signature<R (*)(A...)> : Signature<R(A...)> {};
template <class R, class... A>
struct Signature<R (*)(A...) noexcept> : Signature<R(A...)> {};
template <class R, class C, class... A>
struct Signature<R (C::*)(A...)> : Signature<R(A...)> {};
template <class R, class C, class... A>
struct Signature<R (C::*)(A...) const> : Signature<R(A...)> {};
template <class R, class C, class... A>
struct Signature<R (C::*)(A...) noexcept> : Signature<R(A...)> {};
template <class R, class C, class... A>
struct Signature<R (C::*)(A...) const noexcept> : Signature<R(A...)> {};

template <class F>
concept HasSignature = std::is_function_v<std::remove_pointer_t<std::decay_t<F>>> || requires {
  &std::decay_t<F>::operator();
};

// --- Types and elements --------------------------------------------------------------------------

template <class T>
inline constexpr bool is_string_batch_v = std::is_same_v<T, std::vector<std::string>>;
template <class T>
inline constexpr bool is_number_vector_v = false;
template <class A>
inline constexpr bool is_number_vector_v<std::vector<A>> = std::is_arithmetic_v<A>;

/// A parameter that takes the whole element: a struct, a tuple or a dataset.
template <class T>
constexpr bool takes_whole_element() {
  if constexpr (std::is_same_v<T, Element> || std::is_same_v<T, Dataset>) {
    return true;
  } else {
    return values::nest_kind<T>() == values::NestKind::kTied && !std::is_same_v<T, Tensor>;
  }
}

[[noreturn]] void refuse_component(const std::string& operation, const std::string& wanted,
                                   const Element& got);
/// `wanted` components against what an element has; a wanted maximum above the minimum means
/// optional ones.
void check_components(const std::string& operation, std::size_t least, std::size_t most,
                      const ElementSpec& got);
/// True for a dataset, and for a nest of datasets and nothing else.
bool holds_datasets(const ElementSpec& spec);
void check_datasets(const std::string& operation, const ElementSpec& got);
/// The one number of a 0-D tensor. Errors: InvalidArgument on another shape.
double number_of(const std::string& operation, const Element& element);
/// Errors: also on a number with a fraction, or one that int64_t does not have.
int64_t integer_of(const std::string& operation, const Element& element);

/// A number that T has, as a T. Errors: InvalidArgument for others.
template <class T>
T whole_number(const std::string& operation, const Element& element) {
  const int64_t value = integer_of(operation, element);
  // A bool is whether there is anything; the bits of int64_t are those of uint64_t.
  if constexpr (!std::is_same_v<T, bool> && sizeof(T) < sizeof(int64_t)) {
    if (!std::in_range<T>(value)) {
      refuse_component(
          operation, str_cat("a number that an integer of ", 8 * sizeof(T), " bits has"), element);
    }
  }
  return static_cast<T>(value);
}

template <class T>
T from_element(const std::string& operation, const Element& element);

template <class T, std::size_t... I>
void fill_members(const std::string& operation, const Element& element, T& out,
                  std::index_sequence<I...>) {
  auto members = values::members_of(out);
  ((std::get<I>(members) =
        from_element<std::remove_cvref_t<std::tuple_element_t<I, decltype(members)>>>(operation,
                                                                                      element[I])),
   ...);
}

/// `element` as a T. Errors: InvalidArgument with both sides.
template <class T>
T from_element(const std::string& operation, const Element& element) {
  if constexpr (std::is_same_v<T, Element>) {
    return element;
  } else if constexpr (std::is_same_v<T, Dataset>) {
    if (!holds_datasets(element.spec())) refuse_component(operation, "a dataset", element);
    return T(element.dataset_node());
  } else if constexpr (std::is_same_v<T, Tensor>) {
    if (!element.is_tensor()) refuse_component(operation, "a tensor", element);
    return element.tensor();
  } else if constexpr (std::is_integral_v<T>) {
    return whole_number<T>(operation, element);
  } else if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(number_of(operation, element));
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!element.is_string()) refuse_component(operation, "a string", element);
    return element.string();
  } else if constexpr (is_string_batch_v<T>) {
    if (!element.is_string()) refuse_component(operation, "strings", element);
    return element.strings();
  } else if constexpr (values::is_optional_v<T>) {
    return T(from_element<typename T::value_type>(operation, element));
  } else if constexpr (values::nest_kind<T>() == values::NestKind::kTied) {
    T out{};
    constexpr std::size_t kCount = std::tuple_size_v<decltype(values::members_of(out))>;
    if (!element.is_tuple() || element.size() != kCount) {
      refuse_component(operation, std::to_string(kCount) + " components", element);
    }
    fill_members(operation, element, out, std::make_index_sequence<kCount>());
    return out;
  } else if constexpr (values::is_range_v<T>) {
    static_assert(!is_number_vector_v<T>, "[dataset] take a Tensor instead of a vector of numbers");
    T out;
    for (std::size_t i = 0; i < element.size(); ++i) {
      out.push_back(from_element<typename T::value_type>(operation, element[i]));
    }
    return out;
  } else {
    static_assert(sizeof(T) == 0,
                  "[dataset] expected a Tensor, number, string, Element, "
                  "std::tuple or struct of these");
  }
}

/// A function's result as an element: tensors, numbers (0-D), vectors of numbers (1-D), strings,
/// maps (names), and tuples, vectors and structs of these.
template <class T>
Element to_element(const T& value) {
  if constexpr (std::is_same_v<T, Element> || std::is_same_v<T, Tensor> ||
                std::is_same_v<T, std::string> || is_string_batch_v<T> ||
                std::is_same_v<T, Dataset>) {
    return Element(value);
  } else if constexpr (std::is_arithmetic_v<T>) {
    return Element(from_vector<T>({value}, Shape{}));
  } else if constexpr (is_number_vector_v<T>) {
    return Element(from_vector(value, {static_cast<int64_t>(value.size())}));
  } else if constexpr (values::is_map_v<T>) {
    std::vector<std::pair<std::string, Element>> parts;
    values::for_each_entry(value, [&](const std::string& name, const auto& part) {
      parts.emplace_back(name, to_element(part));
    });
    return Element::named(std::move(parts));
  } else if constexpr (values::is_range_v<T>) {
    std::vector<Element> parts;
    for (const auto& part : value) parts.push_back(to_element(part));
    return Element::tuple(std::move(parts));
  } else if constexpr (values::nest_kind<T>() == values::NestKind::kTied) {
    return std::apply([](const auto&... part) { return Element::tuple({to_element(part)...}); },
                      values::members_of(value));
  } else {
    static_assert(sizeof(T) == 0,
                  "[dataset.map] expected a function that returns a Tensor, number, "
                  "string, Element, std::tuple or struct of these");
  }
}

/// What the type of a result says about its elements.
template <class T>
ElementSpec spec_of_type() {
  if constexpr (std::is_same_v<T, Tensor>) {
    return TensorSpec::unknown();
  } else if constexpr (std::is_same_v<T, Dataset>) {
    return ElementSpec::dataset({});
  } else if constexpr (std::is_same_v<T, bool>) {
    return TensorSpec{{}, kBool};
  } else if constexpr (std::is_arithmetic_v<T>) {
    return TensorSpec{{}, runtime::dtype_of<T>};
  } else if constexpr (std::is_same_v<T, std::string>) {
    return TensorSpec::strings();
  } else if constexpr (is_string_batch_v<T>) {
    return TensorSpec::strings({kUnknownDim});
  } else if constexpr (std::is_same_v<T, Element> || values::is_map_v<T> || values::is_range_v<T>) {
    return {};
  } else if constexpr (values::nest_kind<T>() == values::NestKind::kTied) {
    using Members = decltype(values::members_of(std::declval<T&>()));
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return ElementSpec::tuple(
          {spec_of_type<std::remove_cvref_t<std::tuple_element_t<I, Members>>>()...});
    }
    (std::make_index_sequence<std::tuple_size_v<Members>>());
  } else {
    return {};
  }
}

// --- Calls ---------------------------------------------------------------------------------------

template <class Parameters>
inline constexpr bool takes_one_whole_v = false;
template <class P>
inline constexpr bool takes_one_whole_v<std::tuple<P>> = takes_whole_element<P>();

/// Parameters that an element must fill: all but trailing std::optional ones.
template <class... P>
constexpr std::size_t required_parameters(std::tuple<P...>*) {
  std::size_t required = 0;
  std::size_t i = 0;
  ((++i, required = values::is_optional_v<P> ? required : i), ...);
  return required;
}

/// Checks a callable against what it will be called with, when the pipeline is built.
/// Errors: InvalidArgument with both sides.
template <class F>
void check_function(const std::string& operation, const ElementSpec& spec) {
  using Parameters = typename Signature<std::decay_t<F>>::Parameters;
  if constexpr (takes_one_whole_v<Parameters>) {
    using P = std::tuple_element_t<0, Parameters>;
    if constexpr (std::is_same_v<P, Dataset>) {
      check_datasets(operation, spec);
    } else if constexpr (!std::is_same_v<P, Element>) {
      using Members = decltype(values::members_of(std::declval<P&>()));
      check_components(operation, std::tuple_size_v<Members>, std::tuple_size_v<Members>, spec);
    }
  } else {
    check_components(operation, required_parameters(static_cast<Parameters*>(nullptr)),
                     std::tuple_size_v<Parameters>, spec);
  }
}

template <class P>
P parameter(const std::string& operation, const Element& element, std::size_t i) {
  if constexpr (values::is_optional_v<P>) {
    if (i >= element.size()) return std::nullopt;
  }
  return from_element<P>(operation, element[i]);
}

/// Calls f with an element by the rule above; returns what f returns.
/// Errors: InvalidArgument with both sides, before f runs; what f throws.
template <class F>
decltype(auto) call_with_element(const std::string& operation, F& f, const Element& element) {
  using Parameters = typename Signature<std::decay_t<F>>::Parameters;
  if constexpr (takes_one_whole_v<Parameters>) {
    return f(from_element<std::tuple_element_t<0, Parameters>>(operation, element));
  } else {
    constexpr std::size_t kMost = std::tuple_size_v<Parameters>;
    constexpr std::size_t kLeast = required_parameters(static_cast<Parameters*>(nullptr));
    if (element.size() < kLeast || element.size() > kMost) {
      check_components(operation, kLeast, kMost, element.spec());
    }
    return [&]<std::size_t... I>(std::index_sequence<I...>)->decltype(auto) {
      return f(parameter<std::tuple_element_t<I, Parameters>>(operation, element, I)...);
    }
    (std::make_index_sequence<kMost>());
  }
}

template <class... T>
struct AsResult {
  using type = std::tuple<T...>;
};
template <class T>
struct AsResult<T> {
  using type = T;
};

}  // namespace cohort::internal::data

namespace cohort::data {

template <class... T>
typename internal::data::AsResult<T...>::type Element::as() const {
  return internal::data::from_element<typename internal::data::AsResult<T...>::type>("[element.as]",
                                                                                     *this);
}

}  // namespace cohort::data
