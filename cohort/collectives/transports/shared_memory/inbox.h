// SPDX-License-Identifier: Apache-2.0
//
// A rank's bell, its board and the rings into which its peers write, and this rank's way into
// theirs.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/collectives/transports/shared_memory/ring.h"
#include "cohort/collectives/transports/shared_memory/segment.h"

namespace cohort::internal::collectives {

/// Both directions between this rank and a peer. Threads: thread-compatible.
struct RingPair {
  RingWriter to_peer;
  RingReader from_peer;
};

/// How peers find an inbox; plain data.
struct InboxOffer {
  SegmentOffer segment = {};
  int32_t door = -1;  ///< The descriptor of a pipe.
};

/// Threads: bell() from any; else thread-compatible.
class SharedInbox {
 public:
  /// `machine`: as SegmentOffer::machine, if another one is to be played.
  /// Errors: Error kResourceExhausted.
  SharedInbox(int rank, int ranks, const std::string& machine = {});
  ~SharedInbox();
  SharedInbox(const SharedInbox&) = delete;
  SharedInbox& operator=(const SharedInbox&) = delete;

  const InboxOffer& offer() const { return offer_; }
  /// `offers`: every rank's. Opens those of this machine. `why`: what kept one from being opened.
  void open(std::span<const InboxOffer> offers, std::string* why);
  bool has_opened(int peer) const {
    return static_cast<bool>(theirs_[static_cast<std::size_t>(peer)]);
  }
  /// Where all ranks sleep: who waits for connections, too, does so at its door.
  enum class SleepsAt { kBell, kDoor };
  /// Of a peer that was opened.
  RingPair rings_of(int peer, SleepsAt sleeps);
  SharedBell& bell() { return bell_of(own_); }
  SharedBell& bell_of(int peer) { return bell_of(theirs_[static_cast<std::size_t>(peer)]); }
  /// Can be read as soon as a peer has rung for somebody who sleeps; for who waits for other
  /// descriptors, too.
  int door() const { return door_; }
  void empty_door() const;
  /// Memory of a SharedBoard, zero at first.
  std::byte* board_of(int rank) const;

 private:
  static SharedBell& bell_of(const SharedSegment& segment);
  static SharedRing& ring_of(const SharedSegment& segment, int writer);

  const int rank_;
  const int ranks_;
  SharedSegment own_;
  int door_ = -1;
  InboxOffer offer_;
  std::vector<int> doors_;             // [rank]; -1: not opened
  std::vector<SharedSegment> theirs_;  // [rank]; of this one: empty
};

}  // namespace cohort::internal::collectives
