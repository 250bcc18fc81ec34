// SPDX-License-Identifier: Apache-2.0
//
// Scope: makes a strategy current on the calling thread, as Python's `with strategy.scope():`.
#pragma once

#include <memory>

namespace cohort {

class Strategy;
class StrategyExtended;
namespace internal::runtime {
class ScopeFrame;
}  // namespace internal::runtime

/// Keeps its strategy current on this thread, and alive, for its lifetime. The same strategy may be
/// entered again inside. The default strategy's scope changes nothing, but in a real strategy's
/// scope inside it no variables can be made: they could belong to either.
/// Movable, e.g. into a std::optional; what was moved from ends nothing.
/// Threads: ends on the thread where it began. One that ends on another logs an error, and the
/// thread where it began leaves the strategy the next time it asks for it. Order: scopes end in the
/// reverse order of their beginning; one that does not logs an error. TF: Strategy.scope.
class [[nodiscard]] Scope {
 public:
  ~Scope();
  Scope(Scope&& other) noexcept;
  /// Ends the scope that is replaced.
  Scope& operator=(Scope&& other) noexcept;

 private:
  friend class Strategy;
  /// Errors: see Strategy::scope.
  explicit Scope(const std::shared_ptr<StrategyExtended>& strategy);
  std::unique_ptr<internal::runtime::ScopeFrame> frame_;
};

}  // namespace cohort
