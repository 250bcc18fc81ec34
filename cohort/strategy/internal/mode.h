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
  StrategyExtended* strategy = nullptr;  ///< Null: the default strategy.
  VariableCreator* creator = nullptr;    ///< What makes variables here; null: the default one.
  bool default_scope = false;  ///< The default strategy's own scope was entered, here or below.
};

/// The innermost mode; kDefault with an empty stack.
const Mode& current_mode();
/// The strategy with its ownership; null for the default one.
std::shared_ptr<StrategyExtended> current_strategy();

/// An entry of the stack, which is a list through the guards that own the entries.
struct ModeFrame {
  Mode mode;
  ModeFrame* below = nullptr;
  VariableCreator* creator_before = nullptr;
};
/// Makes the frame the innermost one, and installs its creator.
void push_frame(ModeFrame& frame);
/// Takes the frame out. False if it was not the innermost one: scopes ended in another order than
/// the reverse of their beginning. What is innermost then stays current.
bool pop_frame(ModeFrame& frame);
/// The innermost frame, to see whether there is any.
const ModeFrame* top_frame();

/// Enters a mode for its lifetime. The caller keeps the strategy alive.
/// Cost: no allocation, no atomic operation: there are two for each run.
class [[nodiscard]] ModeGuard {
 public:
  explicit ModeGuard(const Mode& mode) : frame_{.mode = mode} { push_frame(frame_); }
  ~ModeGuard() { pop_frame(frame_); }
  ModeGuard(const ModeGuard&) = delete;
  ModeGuard& operator=(const ModeGuard&) = delete;

 private:
  ModeFrame frame_;
};

/// A frame that keeps its strategy alive, and knows its thread: what users' guards are made of.
class ScopeFrame {
 public:
  ScopeFrame(const Mode& mode, std::shared_ptr<StrategyExtended> owner);
  enum class Order { kReverse, kAny };
  /// Ends `scope`. Out of order it logs an error, unless any order will do. On another thread it
  /// logs one, too, and as a thread's stack can only be changed by itself, that thread takes the
  /// frame out when it next looks at its mode.
  static void end(std::unique_ptr<ScopeFrame> scope, Order order = Order::kReverse);

 private:
  static void leave_ended();

  ModeFrame frame_;
  const std::shared_ptr<StrategyExtended> owner_;
  const void* const thread_;
};

}  // namespace cohort::internal
