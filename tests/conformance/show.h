// SPDX-License-Identifier: Apache-2.0
//
// What a case saw, in the notation of notation.h.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/runtime/tensor.h"
#include "cohort/values/per_replica.h"
#include "cohort/variables/variable.h"

namespace cohort::conformance {

/// A text that stands for itself, without quotes.
struct Word {
  std::string text;
};

std::string show_number(double x);
std::string show_tensor(const Tensor& t);
/// "InvalidArgument" and so on.
std::string show_error(const Error& error);

namespace notation {
template <class T>
inline constexpr bool is_list_v = false;
template <class T>
inline constexpr bool is_list_v<std::vector<T>> = true;
template <class T>
inline constexpr bool is_replicated_v = false;
template <class T>
inline constexpr bool is_replicated_v<PerReplica<T>> = true;
template <class T>
inline constexpr bool is_optional_v = false;
template <class T>
inline constexpr bool is_optional_v<std::optional<T>> = true;
template <class T>
inline constexpr bool is_tuple_v = false;
template <class... A>
inline constexpr bool is_tuple_v<std::tuple<A...>> = true;

template <class T>
std::string show_one(const T& x);

template <class Range>
std::string show_range(const Range& range, const char* begin, const char* between,
                       const char* end) {
  std::string out = begin;
  bool first = true;
  for (const auto& x : range) {
    if (!first) out += between;
    first = false;
    out += show_one<std::remove_cvref_t<decltype(x)>>(x);
  }
  return out + end;
}

template <class T>
std::string show_one(const T& x) {
  if constexpr (std::is_same_v<T, Word>) {
    return x.text;
  } else if constexpr (std::is_same_v<T, bool>) {
    return x ? "true" : "false";
  } else if constexpr (std::is_arithmetic_v<T>) {
    return show_number(static_cast<double>(x));
  } else if constexpr (std::is_same_v<T, Tensor>) {
    return show_tensor(x);
  } else if constexpr (std::is_convertible_v<T, std::string>) {
    return "\"" + std::string(x) + "\"";
  } else if constexpr (is_replicated_v<T>) {
    return show_range(x, "PR(", "|", ")");
  } else if constexpr (is_list_v<T>) {
    return show_range(x, "[", ", ", "]");
  } else if constexpr (is_optional_v<T>) {
    return x ? show_one(*x) : "None";
  } else if constexpr (is_tuple_v<T>) {
    std::string out;
    std::apply(
        [&](const auto&... part) { ((out += (out.empty() ? "(" : ", ") + show_one(part)), ...); },
        x);
    return out + ")";
  } else {
    std::string out = "{";
    for (const auto& [key, part] : x) {
      out += (out.size() > 1 ? ", " : "") + key + ": " + show_one(part);
    }
    return out + "}";
  }
}
}  // namespace notation

/// "a; b; ..." of the things a case looks at.
template <class... T>
std::string show(const T&... things) {
  std::string out;
  ((out += (out.empty() ? "" : "; ") + notation::show_one(things)), ...);
  return out;
}

/// What f returns ("ok" for nothing), or the name of the error that it throws.
template <class F>
Word outcome(F f) {
  try {
    if constexpr (std::is_void_v<decltype(f())>) {
      f();
      return {"ok"};
    } else {
      return {show(f())};
    }
  } catch (const Error& error) {
    return {show_error(error)};
  }
}

/// "PR(..)" of what the components of a variable hold.
Word components(const Variable& v);

/// What a `requires` expression found.
inline Word compiles(bool does) { return {does ? "compiles" : "does not compile"}; }

}  // namespace cohort::conformance
