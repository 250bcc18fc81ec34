// SPDX-License-Identifier: Apache-2.0
//
// A rank's bell and the rings into which its peers write, and this rank's way into theirs.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/collectives/transports/shared_memory/ring.h"
#include "cohort/collectives/transports/shared_memory/segment.h"

namespace cohort::internal {

/// Both directions between this rank and a peer. Threads: thread-compatible.
struct RingPair {
  RingWriter to_peer;
  RingReader from_peer;
};

/// Threads: bell() from any; else thread-compatible.
class SharedInbox {
 public:
  /// Errors: Error kResourceExhausted.
  SharedInbox(int rank, int ranks);

  SegmentOffer offer() const { return own_.offer(); }
  /// `offers`: every rank's. False, with `why`, if one cannot be opened: nothing is used then.
  bool open(std::span<const SegmentOffer> offers, std::string* why);
  /// After open().
  RingPair rings_of(int peer);
  SharedBell& bell() { return bell_of(own_); }

 private:
  static SharedBell& bell_of(const SharedSegment& segment);
  static SharedRing& ring_of(const SharedSegment& segment, int writer);

  const int rank_;
  const int ranks_;
  SharedSegment own_;
  std::vector<SharedSegment> theirs_;  // [rank]; of this one: empty
};

}  // namespace cohort::internal
