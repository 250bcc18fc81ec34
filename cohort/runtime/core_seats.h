// SPDX-License-Identifier: Apache-2.0
//
// Threads that meet often on cores of their own: which core each runs on, and a move for one that
// shares it.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>

namespace cohort::internal {

/// Where a group's threads run. Two that the scheduler has put on one core stay there: each parks
/// while the other works, so that it never sees two that want to run, and the core beside them
/// idles; a step takes twice as long, for seconds. The one that is about to park goes elsewhere.
/// Nothing is pinned: the scheduler may move every thread again, and nobody leaves the cores that a
/// program has allowed to a thread.
/// Threads: note and part from the member's own thread.
class CoreSeats {
 public:
  /// After a move a thread leaves it to the scheduler for so long.
  static constexpr std::chrono::milliseconds kRest{2};

  explicit CoreSeats(int members) : seats_(static_cast<std::size_t>(members)) {}

  /// Notes where the calling thread runs. Often: it costs a nanosecond or two.
  void note(int member);
  /// Before the calling thread parks: if another member was last seen on this core, moves it to one
  /// on which there is none, where the program allows it one. Returns true if it moved.
  /// Cost: a look at every member; for a move some system calls.
  bool part(int member);
  /// The core on which a member was last seen; -1 before.
  int core_of(int member) const { return seats_[member].core.load(std::memory_order_relaxed); }

 private:
  struct alignas(64) Seat {
    std::atomic<int> core{-1};  // written only when it changes: others' caches keep it
    std::chrono::steady_clock::time_point rests_until;
  };
  bool is_taken(int core, int but_for) const;

  std::deque<Seat> seats_;
};

}  // namespace cohort::internal
