// SPDX-License-Identifier: Apache-2.0
//
// A stream of bytes between two processes, and a bell that wakes one of them, in memory they share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cohort/base/function_ref.h"
#include "cohort/runtime/wait_word.h"

namespace cohort::internal::collectives {

/// What a process waits at for whatever its peers do. Lies in shared memory; zeros are its
/// beginning. Threads: thread-safe, across processes.
class SharedBell {
 public:
  uint32_t rings() const { return rings_.load(std::memory_order_seq_cst); }
  /// Whether somebody sleeps. Cost: a system call only then.
  bool ring();
  /// An event of which ranks are waited for, each once: numbers of one kind grow.
  struct Event {
    enum class Kind : uint8_t { kPost, kSecondPost, kFinish, kSecondFinish, kCommit };
    Kind kind = Kind::kPost;
    uint64_t number = 0;
  };
  /// Rank `rank` has come so far, which wait()'s `has_come` sees from here on. Rings if somebody
  /// sleeps for this event and only this rank was missing. Cost: a fence and a load, if nobody
  /// sleeps.
  void arrive(const Event& event, int rank);
  /// Around a sleep of another kind, of which ring() says that there is one; look at rings() once
  /// more in between.
  void begin_sleep() {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // with arrive()'s
  }
  void end_sleep() { sleepers_.fetch_sub(1, std::memory_order_relaxed); }
  /// What a sleep is for. Without an event: whatever anybody does.
  static constexpr auto kNobody = [](int) { return false; };
  struct Sleep {
    std::optional<Event> event = {};
    std::span<const int> ranks = {};
    base::FunctionRef<bool(int rank)> has_come = kNobody;
  };
  /// Returns when it has rung since rings() was `seen`, `is_over`, or at the deadline; one at a
  /// time. With an event it may return only when all of its ranks have come.
  void wait(uint32_t seen, runtime::SpinBudget& budget,
            std::chrono::steady_clock::time_point deadline, base::FunctionRef<bool()> is_over,
            const Sleep& sleep);
  void wait(
      uint32_t seen, runtime::SpinBudget& budget, std::chrono::steady_clock::time_point deadline,
      base::FunctionRef<bool()> is_over = [] { return false; });

 private:
  bool begin_sleep_for(const Sleep& sleep);

  static constexpr int kRankBits = 48;
  static constexpr uint64_t kAnything = (uint64_t{1} << kRankBits) - 1;
  std::atomic<uint32_t> rings_;
  std::atomic<uint32_t> sleepers_;
  // Who is missing, one bit for each rank, below the number of the sleep; kAnything: see Sleep.
  std::atomic<uint64_t> missing_;
  std::atomic<uint64_t> awaited_;  // the event, written while nobody is missing
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

}  // namespace cohort::internal::collectives
