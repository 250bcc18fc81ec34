// SPDX-License-Identifier: Apache-2.0
//
// What is current on a thread: its strategy, which replica it runs, what makes its variables, whose
// random numbers it draws. One stack of frames says it all: entering a scope, a replica, a merge or
// an update pushes one, and everybody asks the innermost.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "cohort/runtime/replica_layout.h"

namespace cohort {

class StrategyExtended;

namespace internal::collectives {
class Communicator;
}  // namespace internal::collectives
namespace internal::strategy {
struct ReplicaStep;
}  // namespace internal::strategy
namespace internal::variables {
class StepUndo;
class VariableCreator;
}  // namespace internal::variables
namespace internal::runtime {

class RandomSeeds;
class ReplicaGroup;

enum class ContextKind : uint8_t { kDefault, kCrossReplica, kReplica };

/// One frame's content. What belongs to higher floors is a name here: they fill it in and ask for
/// it, and keep it alive.
struct ThreadContext {
  ContextKind kind = ContextKind::kDefault;
  bool default_scope = false;  ///< The default strategy's own scope was entered, here or below.
  int replica = -1;            ///< The local replica that runs here; -1 cross-replica and outside.
  int update = -1;             ///< The component that StrategyExtended::update writes now, or -1.
  ReplicaLayout layout = {};   ///< Of the run; outside of runs one replica.
  ReplicaGroup* group = nullptr;  ///< Of the run, also inside of its merges.
  collectives::Communicator* workers =
      nullptr;                           ///< Of a run of several workers, what reaches the others.
  StrategyExtended* strategy = nullptr;  ///< Null: the default strategy.
  variables::VariableCreator* creator = nullptr;  ///< Null: the default one.
  RandomSeeds* seeds = nullptr;                   ///< Null: the process's.
  // Of the step that a replica is in; null where nobody asks.
  variables::StepUndo* undo = nullptr;
  strategy::ReplicaStep* step = nullptr;
};

/// An entry of the stack, which is a list through the guards that own the entries.
struct ContextNode {
  ThreadContext context;
  ContextNode* below = nullptr;
};

/// All that this library keeps per thread and asks often.
struct ThreadSlots {
  ContextNode* top;
  int open_tapes = 0;  ///< Gradient tapes around what the thread does; a replica has its caller's.
};
// Found without a call, also in a shared library; constinit: without a test for its set-up.
extern constinit thread_local ThreadSlots t_slots __attribute__((tls_model("initial-exec")));

/// True once a scope has ended on another thread than its own.
extern std::atomic<bool> scopes_ended_elsewhere;
/// Takes the calling thread's scopes that have ended elsewhere off its stack.
void leave_ended_scopes();

/// The calling thread's innermost frame. Cost: a load or two.
inline const ThreadContext& current_context() {
  if (scopes_ended_elsewhere.load(std::memory_order_acquire)) [[unlikely]]
    leave_ended_scopes();
  return t_slots.top->context;
}

/// Puts a frame onto the calling thread's stack for its lifetime. Threads: bound to one.
/// Cost: no allocation, no atomic operation: there is one for each replica of each run.
class [[nodiscard]] ContextFrame {
 public:
  explicit ContextFrame(const ThreadContext& context) : node_{context, t_slots.top} {
    t_slots.top = &node_;
  }
  ~ContextFrame() {
    if (t_slots.top == &node_) [[likely]] {
      t_slots.top = node_.below;
    } else {
      take_out(node_);
    }
  }
  ContextFrame(const ContextFrame&) = delete;
  ContextFrame& operator=(const ContextFrame&) = delete;

  /// To fill in, while this is the innermost frame.
  ThreadContext& context() { return node_.context; }

 private:
  friend class ScopeFrame;
  friend void leave_ended_scopes();
  // Frames above keep what they say: what is innermost stays current.
  /// False if it was not the innermost one.
  static bool take_out(ContextNode& node);

  ContextNode node_;
};

/// A frame that keeps its strategy alive, and knows its thread: what users' guards are made of.
class ScopeFrame {
 public:
  ScopeFrame(const ThreadContext& context, std::shared_ptr<const void> owner);
  ~ScopeFrame();
  ScopeFrame(const ScopeFrame&) = delete;
  ScopeFrame& operator=(const ScopeFrame&) = delete;

  enum class Order { kReverse, kAny };
  /// Ends `scope`. Out of order it logs an error, unless any order will do. On another thread it
  /// logs one, too, and as a thread's stack can only be changed by itself, that thread takes the
  /// frame out when it next asks for its context.
  static void end(std::unique_ptr<ScopeFrame> scope, Order order = Order::kReverse);
  /// The innermost frame's identity, to see whether it still is; null outside of all.
  static const void* innermost();

 private:
  friend void leave_ended_scopes();

  ContextNode node_;
  const std::shared_ptr<const void> owner_;
  const ThreadSlots* const thread_;
};

}  // namespace internal::runtime
}  // namespace cohort
