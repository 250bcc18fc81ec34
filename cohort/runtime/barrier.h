// SPDX-License-Identifier: Apache-2.0
//
// The meeting point of a group's replicas: spins as its members' budgets say, then parks. A failing
// replica poisons it and a replica that ends leaves it, so that nobody waits for one who will not
// come.
#pragma once

#include <atomic>
#include <cstdint>

#include "cohort/base/error.h"
#include "cohort/base/function_ref.h"
#include "cohort/runtime/wait_word.h"

namespace cohort::internal::runtime {

/// Thrown to the replicas that waited for one that failed: never the cause, always a follower.
class PeerFailed : public Cancelled {
 public:
  using Cancelled::Cancelled;
};

/// Thrown to the members that waited for one that had left.
class MembersDiverged : public FailedPrecondition {
 public:
  using FailedPrecondition::FailedPrecondition;
};

/// Threads: all from the members' threads, but reset() only while none is inside.
class Barrier {
 public:
  explicit Barrier(int members) : members_(members) {}

  /// Returns when all members have arrived; then either all return, or all throw. `budget` is this
  /// member's; `before_parking` is called before it parks.
  /// Memory: what a member wrote before arriving is visible to all after.
  /// Errors: PeerFailed if poisoned before all had arrived; MembersDiverged if a member has
  ///         left.
  void arrive(
      SpinBudget& budget, base::FunctionRef<void()> before_parking = [] {});

  /// This member will not arrive again; if others wait for it, they diverged.
  void leave();

  /// Wakes everybody who waits, and fails all who come later.
  void poison();
  bool poisoned() const { return state_.load(std::memory_order_acquire) != kFine; }
  /// Throws what arrive() would, if it would throw.
  void check() const {
    if (poisoned()) throw_failure();
  }

  void reset();

 private:
  enum State : uint32_t { kFine = 0, kPeerFailed = 1, kDiverged = 2 };
  void fail(State state);
  [[noreturn]] void throw_failure() const;

  const int members_;
  alignas(64) WaitWord generation_;
  std::atomic<uint32_t> meetings_{0};  // completed ones; generation_ also moves when one fails
  alignas(64) std::atomic<int> arrived_{0};
  std::atomic<int> left_{0};
  std::atomic<uint32_t> state_{kFine};
};

}  // namespace cohort::internal::runtime
