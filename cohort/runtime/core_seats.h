// SPDX-License-Identifier: Apache-2.0
//
// Threads that meet often, on cores of their own.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <optional>

namespace cohort::internal::runtime {

/// Where a group's threads run. The scheduler knows nothing of their meetings: two that it has put
/// on one core it leaves there, for each parks while the other works, so that it never sees two
/// that want to run, and the core beside them idles, for seconds. So who has shared a core for a
/// while goes to one without a member before it parks. Nothing is pinned: a thread may run wherever
/// the program allows it to, before and after, and only it moves itself. Threads: each member from
/// its own.
class CoreSeats {
 public:
  /// Two that share a core for less may have been seen where they no longer are, and a move costs a
  /// cache's content.
  static constexpr std::chrono::microseconds kLongShared{300};

  explicit CoreSeats(int members) : seats_(static_cast<std::size_t>(members)) {}

  /// The calling thread is this member and runs here. Often: it costs some nanoseconds.
  void sit(int member);
  /// Before it parks. Cost: a look at every member; for a move some system calls.
  void part(int member);
  /// It takes no core until it sits again.
  void rest(int member);

  /// The core on which a member was last seen; -1 while it rests.
  int core_of(int member) const { return seats_[member].core.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;
  struct alignas(64) Seat {
    std::atomic<int> core{-1};  // written only when it changes: the others' caches keep it
    std::optional<Clock::time_point> shares_since;
  };
  bool is_taken(int core, int but_for) const;

  std::deque<Seat> seats_;
};

}  // namespace cohort::internal::runtime
