// SPDX-License-Identifier: Apache-2.0
//
// A stream of bytes between two processes, and a bell that wakes one of them, in memory they share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cohort/base/function_ref.h"
#include "cohort/runtime/wait_word.h"

namespace cohort::internal {

/// What a process waits at for whatever its peers do. Lies in shared memory; zeros are its
/// beginning. Threads: thread-safe, across processes.
class SharedBell {
 public:
  uint32_t rings() const { return rings_.load(std::memory_order_seq_cst); }
  /// Whether somebody sleeps. Cost: a system call only then.
  bool ring();
  /// For what wait()'s `is_over` sees by itself. Cost: a fence and a load, if nobody sleeps.
  void ring_if_asleep();
  /// Around a sleep of another kind, of which ring() says that there is one; look at rings() once
  /// more in between.
  void begin_sleep() {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // with ring_if_asleep()'s
  }
  void end_sleep() { sleepers_.fetch_sub(1, std::memory_order_relaxed); }
  /// Returns when it has rung since rings() was `seen`, `is_over`, or at the deadline.
  void wait(
      uint32_t seen, SpinBudget& budget, std::chrono::steady_clock::time_point deadline,
      FunctionRef<bool()> is_over = [] { return false; });

 private:
  std::atomic<uint32_t> rings_;
  std::atomic<uint32_t> sleepers_;
};

/// Another process's bell. Threads: thread-compatible.
struct PeerBell {
  SharedBell* bell = nullptr;
  int door = -1;  ///< A pipe that it may sleep at; see SharedInbox::door().
  void ring() const;
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
  RingWriter(SharedRing& ring, PeerBell reader) : ring_(&ring), reader_(reader) {}
  /// Writes as much as there is room for and returns it. With none left for the rest, the reader
  /// rings the writer's bell once there is. Does not ring the reader's: see publish().
  std::size_t write(std::span<const std::byte> bytes);
  /// After write(): tells the reader.
  void publish() const { reader_.ring(); }

 private:
  SharedRing* ring_;
  PeerBell reader_;
};

/// Threads: one reader.
class RingReader {
 public:
  RingReader(SharedRing& ring, PeerBell writer) : ring_(&ring), writer_(writer) {}
  /// Reads what is there, up to so much; returns how much.
  std::size_t read(std::span<std::byte> bytes);

 private:
  SharedRing* ring_;
  PeerBell writer_;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace cohort::internal
