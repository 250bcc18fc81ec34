// SPDX-License-Identifier: Apache-2.0
//
// What has to happen however a block is left.
#pragma once

#include <utility>

namespace cohort::internal::base {

/// Calls `function` at the end of its scope, also when an exception leaves it.
/// Errors: an exception of `function` ends the process.
template <class Function>
class [[nodiscard]] ScopeExit {
 public:
  explicit ScopeExit(Function function) : function_(std::move(function)) {}
  ~ScopeExit() { function_(); }
  ScopeExit(const ScopeExit&) = delete;
  ScopeExit& operator=(const ScopeExit&) = delete;

 private:
  const Function function_;
};

}  // namespace cohort::internal::base
