// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/inbox.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"
#include "cohort/collectives/transports/shared_memory/board.h"

namespace cohort::internal::collectives {
namespace {

constexpr std::size_t kRings = 64;  // where they begin, behind the bell
static_assert(sizeof(SharedBell) <= kRings && alignof(SharedRing) <= kRings);

constexpr std::size_t rings_end(int ranks) {
  return kRings + static_cast<std::size_t>(ranks) * sizeof(SharedRing);
}
std::size_t bytes_of(int ranks) { return rings_end(ranks) + SharedBoard::bytes(ranks); }

}  // namespace

SharedInbox::SharedInbox(int rank, int ranks, const std::string& machine)
    : rank_(rank),
      ranks_(ranks),
      // Most ranks never fill the rings of most others.
      own_(SharedSegment::create(bytes_of(ranks), SharedSegment::Pages::kWhenWritten)),
      doors_(static_cast<std::size_t>(ranks), -1) {
  std::array<int, 2> ends = {-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error(ErrorCode::kResourceExhausted, str_cat("[communicator] expected a pipe, got ",
                                                       std::generic_category().message(errno)));
  }
  door_ = ends[0];
  doors_[static_cast<std::size_t>(rank)] = ends[1];  // one that nobody has open would look rung
  offer_ = {.segment = own_.offer(), .door = door_};
  if (machine.empty()) return;
  offer_.segment.machine = {};
  std::copy_n(machine.begin(), std::min(machine.size(), offer_.segment.machine.size()),
              offer_.segment.machine.begin());
}

SharedInbox::~SharedInbox() {
  if (door_ >= 0) ::close(door_);
  for (const int door : doors_) {
    if (door >= 0) ::close(door);
  }
}

void SharedInbox::empty_door() const {
  std::array<char, 64> bytes;
  while (::read(door_, bytes.data(), bytes.size()) > 0) {
  }
}

void SharedInbox::open(std::span<const InboxOffer> offers, std::string* why) {
  theirs_.clear();
  for (int peer = 0; peer < ranks_; ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    const InboxOffer& offer = offers[at];
    theirs_.emplace_back();
    if (peer == rank_) continue;
    if (offer.segment.machine != offer_.segment.machine || offer.segment.machine[0] == '\0') {
      *why = str_cat("rank ", peer, " is on another machine");
      continue;
    }
    SegmentOffer found = offer.segment;
    found.machine = own_.offer().machine;
    SharedSegment segment = SharedSegment::open(found, why);
    if (!segment || segment.bytes() != own_.bytes()) {
      *why = str_cat("rank ", peer, ": ", *why);
      continue;
    }
    const std::string door = str_cat("/proc/", offer.segment.process, "/fd/", offer.door);
    // To read, too: writing into a pipe that nobody reads any more would end this process.
    doors_[at] = ::open(door.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (doors_[at] < 0) {
      *why = str_cat("rank ", peer, ": ", door, ": ", std::generic_category().message(errno));
      continue;
    }
    theirs_[at] = std::move(segment);
  }
}

SharedBell& SharedInbox::bell_of(const SharedSegment& segment) {
  return *reinterpret_cast<SharedBell*>(segment.data());
}

SharedRing& SharedInbox::ring_of(const SharedSegment& segment, int writer) {
  return reinterpret_cast<SharedRing*>(segment.data() + kRings)[writer];
}

std::byte* SharedInbox::board_of(int rank) const {
  const SharedSegment& segment = rank == rank_ ? own_ : theirs_[static_cast<std::size_t>(rank)];
  return segment.data() + rings_end(ranks_);
}

RingPair SharedInbox::rings_of(int peer, SleepsAt sleeps) {
  const SharedSegment& theirs = theirs_[static_cast<std::size_t>(peer)];
  const PeerBell bell{&bell_of(theirs),
                      sleeps == SleepsAt::kDoor ? doors_[static_cast<std::size_t>(peer)] : -1};
  return {RingWriter(ring_of(theirs, rank_), bell), RingReader(ring_of(own_, peer), bell)};
}

}  // namespace cohort::internal::collectives
