// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/core_seats.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <optional>

namespace cohort::internal {
namespace {

/// CPU time between two looks, in nanoseconds, below which a thread has not run.
constexpr int64_t kStands = 10'000;
constexpr int64_t kUnknown = -1;

/// Two that share a core for less may have been seen where they no longer are, and a move costs a
/// cache's content.
constexpr std::chrono::microseconds kLongShared{300};

/// Nanoseconds; exact also while the thread runs.
int64_t cpu_time(pthread_t thread) {
  clockid_t clock{};
  timespec time{};
  if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &time) != 0) {
    return kUnknown;
  }
  return int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
}

/// Moves a thread to one of the cores that the program allows it, and allows it all of them again.
/// The kernel moves it at once, and does not move it back by itself.
bool move(pthread_t thread, int core, const cpu_set_t& allowed) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  if (pthread_setaffinity_np(thread, sizeof only, &only) != 0) return false;
  pthread_setaffinity_np(thread, sizeof allowed, &allowed);
  return true;
}

bool read_allowed(pthread_t thread, cpu_set_t& allowed) {
  CPU_ZERO(&allowed);
  return pthread_getaffinity_np(thread, sizeof allowed, &allowed) == 0;
}

}  // namespace

CoreSeats::CoreSeats(int members) {
  for (int member = 0; member < members; ++member) seats_.emplace_back(*this, member, members);
}

void CoreSeats::sit(int member) {
  Seat& seat = seats_[member];
  const int core = sched_getcpu();
  const pthread_t self = pthread_self();
  if (seat.core.load(std::memory_order_relaxed) != core) {
    seat.core.store(core, std::memory_order_relaxed);
  }
  if (seat.thread.load(std::memory_order_relaxed) != self) {
    seat.thread.store(self, std::memory_order_relaxed);
  }
  if (!seat.works.load(std::memory_order_relaxed)) {
    seat.works.store(true, std::memory_order_release);
  }
}

void CoreSeats::Seat::will_park() {
  all.part(member);
  std::fill(cpu_times.begin(), cpu_times.end(), kUnknown);
  works.store(false, std::memory_order_relaxed);
}

bool CoreSeats::is_taken(int core, int but_for) const {
  for (int other = 0; other < static_cast<int>(seats_.size()); ++other) {
    if (other != but_for && core_of(other) == core) return true;
  }
  return false;
}

void CoreSeats::part(int member) {
  sit(member);
  std::optional<Clock::time_point>& since = seats_[member].shares_since;
  if (!is_taken(core_of(member), member)) return since.reset();
  const Clock::time_point now = Clock::now();
  if (!since) since = now;
  if (now - *since < kLongShared) return;
  since.reset();
  cpu_set_t allowed;
  if (!read_allowed(pthread_self(), allowed)) return;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || is_taken(core, member)) continue;
    move(pthread_self(), core, allowed);
    sit(member);
    return;
  }
}

void CoreSeats::fetch_one_that_stands(int member) {
  std::vector<int64_t>& seen = seats_[member].cpu_times;
  const int members = static_cast<int>(seats_.size());
  for (int i = 1; i < members; ++i) {
    const int other = (member + i) % members;
    const Seat& seat = seats_[other];
    const bool works = seat.works.load(std::memory_order_acquire);
    const pthread_t thread = seat.thread.load(std::memory_order_relaxed);
    const int64_t now = works ? cpu_time(thread) : kUnknown;
    const bool stands = now != kUnknown && seen[other] != kUnknown && now - seen[other] < kStands;
    seen[other] = now;
    if (!stands) continue;
    const int here = sched_getcpu();
    cpu_set_t allowed;
    if (!read_allowed(thread, allowed) || !CPU_ISSET(here, &allowed)) continue;
    // One: a second one would only wait for the first one's slice.
    if (move(thread, here, allowed)) return;
  }
}

}  // namespace cohort::internal
