// SPDX-License-Identifier: Apache-2.0
//
// What of the transport is MPI's: messages go over its lanes, while ranks meet, fail and end as
// they do over TCP.
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/collectives/transports/tcp/transport_parts.h"

namespace cohort::internal::collectives {
namespace {

// Waiting for MPI is looking, and nothing of it wakes who sleeps: first a rank gives its core to
// others, then it naps for longer and longer.
constexpr unsigned kYields = 200;
constexpr std::chrono::microseconds kLongestNap{1000};
// How long what a rank has sent is carried on when it ends.
constexpr std::chrono::seconds kLeavesWithin{3};

}  // namespace

void TcpTransport::move_to_mpi(Deadline deadline) {
  const std::vector<MpiPlace> places = told_by_all(3, mpi_place(), deadline);
  std::vector<int> ranks;
  for (const MpiPlace& place : places) {
    const bool is_new = std::find(ranks.begin(), ranks.end(), place.rank) == ranks.end();
    COHORT_CHECK_STATE(place.size == size() && place.job == places[0].job && is_new,
                       "[communicator] expected mpirun to have started the ", size(),
                       " workers of this job and nobody else, got rank ", ranks.size(),
                       " as process ", place.rank, " of ", place.size,
                       " that were started together: kMpi is for programs that mpirun starts");
    ranks.push_back(place.rank);
  }
  lanes_ = std::make_unique<MpiLanes>(std::move(ranks));
  await_lanes(deadline);
  for (const int peer : others_) stream(peer).move_to(lanes_->lane_to(peer));
}

void TcpTransport::await_lanes(Deadline deadline) {
  while (!lanes_->are_ready()) {
    alarms_->check();
    for (const int peer : others_) {
      if (!alarms_->is_away(peer)) continue;
      throw Unavailable(
          str_cat("[communicator] expected every rank to begin with MPI, got none from ",
                  alarms_->name_of(peer)),
          alarms_->name_of(peer));
    }
    if (nap(deadline)) continue;
    throw DeadlineExceeded("[communicator] expected every rank to begin with MPI in time");
  }
  naps_ = 0;
}

bool TcpTransport::nap(Deadline deadline) {
  pollfd bell{.fd = alarms_->bell(), .events = POLLIN, .revents = 0};
  timespec time = {};
  if (++naps_ <= kYields) {
    sched_yield();
  } else {
    const auto us = std::min<int64_t>(kLongestNap.count(), 10 * int64_t{naps_ - kYields});
    time.tv_nsec = us * 1000;
  }
  const int ready = ::ppoll(&bell, 1, &time, nullptr);
  if (bell.revents != 0) alarms_->silence_bell();
  return ready > 0 || std::chrono::steady_clock::now() < deadline;
}

// MPI goes on with what was sent only while somebody calls it, and what it had no room for, such as
// a goodbye or the answer to a commit, waits in the streams.
void TcpTransport::empty_lanes() noexcept {
  if (!lanes_ || alarms_->failed() || is_mpi_over()) return;
  const auto until = std::chrono::steady_clock::now() + kLeavesWithin;
  const auto have_left = [&] {
    bool all = true;
    for (const int peer : others_) {
      stream(peer).write_some();
      all = !stream(peer).wants_to_write() && stream(peer).has_sent_all() && all;
    }
    return all;
  };
  naps_ = 0;
  try {
    while (!have_left() && nap(until)) {
    }
  } catch (...) {
    // It has ended; so do the others.
  }
}

}  // namespace cohort::internal::collectives
