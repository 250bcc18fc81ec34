// SPDX-License-Identifier: Apache-2.0
//
// Threads that meet often, on cores that other programs want, too: who waits gives its core to
// those it waits for.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "cohort/runtime/wait_word.h"

namespace cohort::internal {

/// Where a group's threads run. The scheduler knows nothing of their meetings. It
/// - leaves two that it has put on one core there: each parks while the other works, so that it
///   never sees two that want to run, and the core beside them idles, for seconds;
/// - lets one that was preempted wait for its next slice, some milliseconds, where it is, while the
///   core of the one that waits for it idles.
/// So who has shared a core for a while goes to a free one before it parks, and who has parked for
/// long fetches one that does not get to run onto its own core. Nothing is pinned: a thread may run
/// wherever the program allows it to, before and after.
/// Threads: each member from its own, within a run in which all threads live.
class CoreSeats {
 public:
  explicit CoreSeats(int members);

  /// The calling thread is this member, runs here and works. Often: it costs some nanoseconds.
  void sit(int member);
  /// Nobody waits for this member until it sits again.
  void rest(int member) { seats_[member].works.store(false, std::memory_order_relaxed); }
  /// For this member's waits.
  ParkingHelper& helper(int member) { return seats_[member]; }

  /// The core on which a member was last seen; -1 before.
  int core_of(int member) const { return seats_[member].core.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;
  struct alignas(64) Seat final : ParkingHelper {
    Seat(CoreSeats& group, int self, int members)
        : all(group), member(self), cpu_times(static_cast<std::size_t>(members)) {}
    void will_park() override;
    void still_waits() override { all.fetch_one_that_stands(member); }
    void has_parked() override { works.store(true, std::memory_order_release); }

    // Written only when they change: the others' caches keep them.
    std::atomic<int> core{-1};
    std::atomic<pthread_t> thread{};
    std::atomic<bool> works{false};  // then the thread is known, and lives

    CoreSeats& all;
    const int member;
    std::optional<Clock::time_point> shares_since;  // with one of the others
    std::vector<int64_t> cpu_times;  // nanoseconds, of all, at the last look in this wait; or -1
  };

  bool is_taken(int core, int but_for) const;
  void part(int member);
  void fetch_one_that_stands(int member);

  std::deque<Seat> seats_;
};

}  // namespace cohort::internal
