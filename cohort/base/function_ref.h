// SPDX-License-Identifier: Apache-2.0
//
// A callable passed down a call, never stored: no allocation, one indirect call.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace cohort::internal {

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
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, A... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<A>(args)...);
        }) {}

  R operator()(A... args) const { return call_(object_, std::forward<A>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, A...);
};

}  // namespace cohort::internal
