// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/core_seats.h"

#include <sched.h>

namespace cohort::internal {

void CoreSeats::note(int member) {
  const int core = sched_getcpu();
  std::atomic<int>& seat = seats_[member].core;
  if (seat.load(std::memory_order_relaxed) != core) seat.store(core, std::memory_order_relaxed);
}

bool CoreSeats::is_taken(int core, int but_for) const {
  for (int other = 0; other < static_cast<int>(seats_.size()); ++other) {
    if (other != but_for && core_of(other) == core) return true;
  }
  return false;
}

bool CoreSeats::part(int member) {
  note(member);
  if (!is_taken(core_of(member), member)) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now < seats_[member].rests_until) return false;
  seats_[member].rests_until = now + kRest;

  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  int target = 0;
  while (target < CPU_SETSIZE && (!CPU_ISSET(target, &allowed) || is_taken(target, member))) {
    ++target;
  }
  if (target == CPU_SETSIZE) return false;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(target, &only);
  // The kernel moves a thread that may not stay where it is at once, and does not move it back.
  if (sched_setaffinity(0, sizeof only, &only) != 0) return false;
  sched_setaffinity(0, sizeof allowed, &allowed);
  note(member);
  return true;
}

}  // namespace cohort::internal
