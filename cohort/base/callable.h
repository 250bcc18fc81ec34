// SPDX-License-Identifier: Apache-2.0
//
// Functions that a program passes in: one that holds none is refused where it is passed, not where
// it would be called.
//
//   return do_map(checked_function("[dataset.map]", std::move(fn)));
#pragma once

#include <functional>
#include <type_traits>
#include <utility>

namespace cohort::internal::base {

template <class F>
inline constexpr bool can_be_empty_v = std::is_pointer_v<F> || std::is_member_pointer_v<F>;
template <class Signature>
inline constexpr bool can_be_empty_v<std::function<Signature>> = true;

/// InvalidArgument "[dataset.map] expected a function, ...".
[[noreturn]] void refuse_empty_function(const char* operation, const char* what);

/// `fn` itself. `what` names it where an operation takes several.
/// Errors: InvalidArgument for an empty std::function and for a null pointer.
template <class F>
F&& checked_function(const char* operation, F&& fn, const char* what = "a function") {
  if constexpr (can_be_empty_v<std::remove_cvref_t<F>>) {
    if (fn == nullptr) [[unlikely]]
      refuse_empty_function(operation, what);
  }
  return std::forward<F>(fn);
}

}  // namespace cohort::internal::base
