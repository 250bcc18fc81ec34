// SPDX-License-Identifier: Apache-2.0
//
// Memory of this process that the other ranks can read where it is: segments of their own, listed
// in a table that all ranks see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cohort/collectives/transports/shared_memory/segment.h"
#include "cohort/runtime/device_backend.h"

namespace cohort::internal::collectives {

/// Which segments a rank has. Lies in shared memory, written by that rank alone; an entry that a
/// peer was sent the number of stays as it is until the peer has come to a later exchange.
struct SegmentTable {
  static constexpr std::size_t kMost = 128;
  SegmentOffer entries[kMost];
};

/// Where a byte of a heap is.
struct HeapPlace {
  int32_t segment = 0;
  uint64_t at = 0;
};

/// This rank's memory. Threads: thread-safe; what it gave may outlive it.
class SharedHeap {
 public:
  /// Smaller pieces are copied sooner than they are looked up.
  static constexpr std::size_t kLeastBytes = std::size_t{16} << 10;

  explicit SharedHeap(SegmentTable* table);
  ~SharedHeap();
  SharedHeap(const SharedHeap&) = delete;
  SharedHeap& operator=(const SharedHeap&) = delete;

  /// Zeros, 64-byte aligned. Null if they are few, or the table is full.
  /// Errors: Error kResourceExhausted.
  std::shared_ptr<std::byte> allocate(std::size_t bytes);
  /// Address space whose pages come when they are written, where the system has none left by
  /// SIGBUS. In a child of this process what is in it is still the parent's: nothing clears it.
  /// Null if the table is full. Errors: Error kResourceExhausted.
  std::unique_ptr<runtime::Region> reserve(std::size_t bytes);
  /// Unset for memory that was not allocated here.
  std::optional<HeapPlace> find(std::span<const std::byte> bytes) const;

 private:
  struct State;
  struct Entry;
  class HeapRegion;
  std::shared_ptr<Entry> enter(std::size_t bytes, SharedSegment::Pages pages);
  const std::shared_ptr<State> state_;
};

/// Other ranks' memory, as they allocate it. What they have freed is let go when something new is
/// read. Threads: thread-compatible.
class PeerHeap {
 public:
  PeerHeap() = default;
  explicit PeerHeap(const SegmentTable* table) : table_(table) {}
  /// Errors: Error kUnavailable if the segment cannot be opened.
  std::span<const std::byte> read(HeapPlace place, std::size_t bytes);

 private:
  const SegmentTable* table_ = nullptr;
  std::map<int32_t, std::pair<std::array<uint64_t, 2>, SharedSegment>> open_;  // by token
};

}  // namespace cohort::internal::collectives
