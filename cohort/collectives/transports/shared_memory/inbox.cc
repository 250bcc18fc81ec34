// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/inbox.h"

#include "cohort/base/strings.h"

namespace cohort::internal {
namespace {

constexpr std::size_t kRings = 64;  // where they begin, behind the bell
static_assert(sizeof(SharedBell) <= kRings && alignof(SharedRing) <= kRings);

constexpr std::size_t bytes_of(int ranks) {
  return kRings + static_cast<std::size_t>(ranks) * sizeof(SharedRing);
}

}  // namespace

SharedInbox::SharedInbox(int rank, int ranks)
    : rank_(rank), ranks_(ranks), own_(SharedSegment::create(bytes_of(ranks))) {}

bool SharedInbox::open(std::span<const SegmentOffer> offers, std::string* why) {
  theirs_.clear();
  for (int peer = 0; peer < ranks_; ++peer) {
    SharedSegment segment;
    const SegmentOffer& offer = offers[static_cast<std::size_t>(peer)];
    if (peer != rank_) {
      segment = SharedSegment::open(offer, why);
      if (segment && segment.bytes() != own_.bytes()) segment = SharedSegment();
      if (!segment) {
        *why = str_cat("rank ", peer, ": ", *why);
        return false;
      }
    }
    theirs_.push_back(std::move(segment));
  }
  return true;
}

SharedBell& SharedInbox::bell_of(const SharedSegment& segment) {
  return *reinterpret_cast<SharedBell*>(segment.data());
}

SharedRing& SharedInbox::ring_of(const SharedSegment& segment, int writer) {
  return reinterpret_cast<SharedRing*>(segment.data() + kRings)[writer];
}

RingPair SharedInbox::rings_of(int peer) {
  const SharedSegment& theirs = theirs_[static_cast<std::size_t>(peer)];
  return {RingWriter(ring_of(theirs, rank_), bell_of(theirs)),
          RingReader(ring_of(own_, peer), bell_of(theirs))};
}

}  // namespace cohort::internal
