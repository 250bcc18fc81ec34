// SPDX-License-Identifier: Apache-2.0
//
// A stream of bytes between two processes, and a bell that wakes one of them, in memory they share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cohort/runtime/wait_word.h"

namespace cohort::internal {

/// What a process waits at for whatever its peers do. Lies in shared memory; zeros are its
/// beginning. Threads: thread-safe, across processes.
class SharedBell {
 public:
  uint32_t rings() const { return rings_.load(std::memory_order_seq_cst); }
  /// Cost: a system call only if somebody sleeps.
  void ring();
  /// Returns when it has rung since rings() was `seen`, or at the deadline.
  void wait(uint32_t seen, SpinBudget& budget, std::chrono::steady_clock::time_point deadline);

 private:
  std::atomic<uint32_t> rings_;
  std::atomic<uint32_t> sleepers_;
};

/// Where bytes are between a writer and a reader. Lies in shared memory; zeros are its beginning.
struct SharedRing {
  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  alignas(64) std::atomic<uint64_t> head;            ///< All that was written so far.
  alignas(64) std::atomic<uint64_t> tail;            ///< All that was read so far.
  alignas(64) std::atomic<uint32_t> writer_is_full;  ///< The writer wants to hear of room.
  alignas(64) std::byte bytes[kBytes];
};

/// Threads: one writer.
class RingWriter {
 public:
  RingWriter(SharedRing& ring, SharedBell& readers) : ring_(&ring), readers_(&readers) {}
  /// Writes as much as there is room for and returns it. With none left for the rest, the reader
  /// rings the writer's bell once there is. Does not ring the reader's: see publish().
  std::size_t write(std::span<const std::byte> bytes);
  /// After write(): tells the reader.
  void publish() { readers_->ring(); }

 private:
  SharedRing* ring_;
  SharedBell* readers_;
};

/// Threads: one reader.
class RingReader {
 public:
  RingReader(SharedRing& ring, SharedBell& writers) : ring_(&ring), writers_(&writers) {}
  /// Reads what is there, up to so much; returns how much.
  std::size_t read(std::span<std::byte> bytes);

 private:
  SharedRing* ring_;
  SharedBell* writers_;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace cohort::internal
