// SPDX-License-Identifier: Apache-2.0
//
// A number in memory that threads wait on: they look for a while, then give their core away.
//
//   WaitWord word;                          // one thread:      word.add(1); word.wake_all();
//   SpinBudget budget(kMostSpins);          // each of others:  word.wait_while(0, budget);
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "cohort/base/function_ref.h"

namespace cohort::internal::runtime {

/// How often one thread looks before it parks. It learns from what its waits cost: looking that
/// ended in a park was in vain, and took a core from somebody who wanted it (often from the very
/// thread that is waited for); looking that was rewarded saved the price of parking. Where it looks
/// little, every kProbe-th wait looks as long as may be, to see whether the cores have become free.
/// Threads: bound to one.
class SpinBudget {
 public:
  static constexpr int kFewest = 16;
  static constexpr unsigned kProbe = 32;

  /// `most` 0: parks at once, always.
  explicit SpinBudget(int most) : most_(most), spins_(most) {}

  /// For the wait that begins.
  int next() { return ++waits_ % kProbe == 0 ? most_ : spins_; }
  int spins() const { return spins_; }

  /// The wait ended after so many looks.
  void met(int looks) { set(std::max(spins_ + spins_ / 8 + 1, 2 * looks)); }
  /// It ended by parking.
  void parked() { set(spins_ / 2); }

 private:
  void set(int spins) { spins_ = std::clamp(spins, std::min(kFewest, most_), most_); }

  const int most_;
  int spins_;
  unsigned waits_ = 0;
};

/// A 32-bit number with threads that wait for it to change.
///
/// Memory: every change is a release, every look an acquire: who sees the number sees what was
/// written before the change. add() and wake_all() against wait_while(): a waiter counts itself,
/// then looks once more, then sleeps if the number is still the old one (the kernel compares under
/// its own lock); a waker changes, then reads the count. All four are sequentially consistent, so
/// either the waiter sees the change or the waker sees the waiter.
/// Not std::atomic::wait: it calls sched_yield before it parks, which on a busy machine is no wait
/// but a present of a whole slice to whoever else wants the core.
class WaitWord {
 public:
  uint32_t load(std::memory_order order = std::memory_order_acquire) const {
    return value_.load(order);
  }
  /// Nobody may be waiting, or wake_all() follows.
  void store(uint32_t value) { value_.store(value, std::memory_order_seq_cst); }
  /// Returns what was there before.
  uint32_t add(uint32_t n) { return value_.fetch_add(n, std::memory_order_seq_cst); }
  uint32_t subtract(uint32_t n) { return value_.fetch_sub(n, std::memory_order_seq_cst); }

  /// Waits until the number differs from `old`; calls `before_parking` if looking was in vain.
  void wait_while(
      uint32_t old, SpinBudget& budget, base::FunctionRef<void()> before_parking = [] {});
  /// After a change. Cost: a system call only if somebody has parked.
  void wake_all();

  /// How many have parked, or are about to.
  int parked() const { return parked_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> value_{0};
  std::atomic<int> parked_{0};
};

/// The most that a thread looks before parking: 0 where `threads` exceed the cores that can run at
/// once, for a looking thread would then keep the one it waits for from running. A quota of CPU
/// time does not count: within it the threads still run side by side, looking costs a step in
/// proportion what it costs without a quota, and parking at each meeting costs more (`tiny:16:2` of
/// contention_bench under 1.5 cores: 40 to 45 us against 180).
int most_spins(int threads);

}  // namespace cohort::internal::runtime
