// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/core_seats.h"

#include <sched.h>

namespace cohort::internal::runtime {
namespace {

/// Moves the calling thread to one of its allowed cores, and allows it all of them again. The
/// kernel moves it at once, and does not move it back by itself.
void move_to(int core, const cpu_set_t& allowed) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  if (sched_setaffinity(0, sizeof only, &only) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace

void CoreSeats::sit(int member) {
  const int core = sched_getcpu();
  std::atomic<int>& seat = seats_[member].core;
  if (seat.load(std::memory_order_relaxed) != core) seat.store(core, std::memory_order_relaxed);
}

void CoreSeats::rest(int member) {
  seats_[member].core.store(-1, std::memory_order_relaxed);
  seats_[member].shares_since.reset();
}

bool CoreSeats::is_taken(int core, int but_for) const {
  for (int other = 0; other < static_cast<int>(seats_.size()); ++other) {
    if (other != but_for && core_of(other) == core) return true;
  }
  return false;
}

void CoreSeats::part(int member) {
  sit(member);
  const int here = core_of(member);
  std::optional<Clock::time_point>& since = seats_[member].shares_since;
  if (!is_taken(here, member)) return since.reset();
  const Clock::time_point now = Clock::now();
  if (!since) since = now;
  if (now - *since < kLongShared) return;
  since.reset();
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  // From the own core on: other groups and programs look, too, and not all of them from core 0.
  for (int i = 1; i < CPU_SETSIZE; ++i) {
    const int core = (here + i) % CPU_SETSIZE;
    if (!CPU_ISSET(core, &allowed) || is_taken(core, member)) continue;
    move_to(core, allowed);
    return sit(member);
  }
}

}  // namespace cohort::internal::runtime
