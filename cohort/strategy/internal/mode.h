// SPDX-License-Identifier: Apache-2.0
//
// The calling thread's stack of modes: which strategy is current, and in which context.
#pragma once

#include <memory>

#include "cohort/variables/variable_impl.h"

namespace cohort {
class StrategyExtended;
}

namespace cohort::internal {

enum class ModeKind { kDefault, kCrossReplica, kReplica };

struct Mode {
  ModeKind kind = ModeKind::kDefault;
  std::shared_ptr<StrategyExtended> strategy;  ///< Null: the default strategy.
};

/// The innermost mode; kDefault with an empty stack.
const Mode& current_mode();

/// Enters a mode, and installs the strategy's variable creator, for its lifetime.
class [[nodiscard]] ModeGuard {
 public:
  ModeGuard(ModeKind kind, std::shared_ptr<StrategyExtended> strategy);
  ~ModeGuard();
  ModeGuard(const ModeGuard&) = delete;
  ModeGuard& operator=(const ModeGuard&) = delete;

 private:
  Mode before_;
  VariableCreatorScope creator_;
};

}  // namespace cohort::internal
