// SPDX-License-Identifier: Apache-2.0
//
// A callable passed down a call, never stored: no allocation, one indirect call.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace cohort::internal::base {

template <class Signature>
class FunctionRef;

/// Refers to a callable that outlives the call it is passed to.
template <class R, class... A>
class FunctionRef<R(A...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
           std::is_invocable_r_v<R, F&, A...>)
      FunctionRef(F&& f)  // NOLINT: implicit by design, like std::function
      : object_(address_of(f)), call_([](void* object, A... args) -> R {
          using Callable = std::remove_reference_t<F>;
          return (*reinterpret_cast<Callable*>(object))(std::forward<A>(args)...);
        }) {}

  R operator()(A... args) const { return call_(object_, std::forward<A>(args)...); }

 private:
  // A function's address is no object's, but POSIX gives both the same size.
  template <class F>
  static void* address_of(F& f) {
    if constexpr (std::is_function_v<F>) {
      return reinterpret_cast<void*>(&f);
    } else {
      return const_cast<void*>(static_cast<const void*>(std::addressof(f)));
    }
  }

  void* object_;
  R (*call_)(void*, A...);
};

}  // namespace cohort::internal::base
