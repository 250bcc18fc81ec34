// SPDX-License-Identifier: Apache-2.0
//
// The memory of a lane (lane.h): places, each for one call at a time, with a word that says whose
// turn it is.
//
//   client   kWriting    of a large request: `written` of its bytes stand there by now
//   client   kAsked      the request stands at the beginning of the place's bytes
//   server   (kAsked)    `filled` bytes of the answer's room are final by now
//   server   kAnswered   the answer stands behind it; the server may go on reading the request, and
//                        says so by is_held
//   client   kAsked      the next one, once it has read the answer and is_held is 0
//
// It is a memfd: it has no name and no file, and is gone with the last process that has it, however
// that ended. Neither side believes the other one: where a place is, and how large, each knows by
// itself; every number that the other has written is read once, and checked.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "cohort/base/function_ref.h"
#include "cohort/base/process_mark.h"
#include "cohort/runtime/wait_word.h"

namespace cohort::internal::rpc {

/// How often somebody looks before it sleeps: not at all where the process has one core.
int lane_looks();

/// A number in shared memory that one thread waits for to change, and one of another process
/// changes. Zeros are its beginning.
class LaneWord {
 public:
  uint32_t load() const { return value_.load(std::memory_order_acquire); }
  void store(uint32_t value);
  void add();
  /// Blocks: while it is `old`, at most until `most` has passed. `meanwhile`: what is done at each
  /// look; true: it was worth a look.
  void wait_while(
      uint32_t old, runtime::SpinBudget& budget, std::chrono::milliseconds most,
      base::FunctionRef<bool()> meanwhile = [] { return false; });

 private:
  void wake();
  std::atomic<uint32_t> value_;
  std::atomic<uint32_t> sleepers_;
};

enum LaneState : uint32_t {
  kLaneNew = 0,
  kLaneAsked = 1,
  kLaneAnswered = 2,
  kLaneWriting = 3,
};
/// An answer that has no room in the place: it is to be asked for in another way.
inline constexpr uint32_t kLaneElsewhere = 0xffff;

struct LanePlace {
  static constexpr std::size_t kHeadBytes = 192;
  alignas(64) LaneWord state;     ///< A LaneState.
  std::atomic<uint32_t> is_held;  ///< The server reads the request, or may.
  std::atomic<uint32_t> method;   ///< Its place in LaneOffer::methods.
  std::atomic<uint32_t> code;     ///< Of an error, or 0.
  std::atomic<uint64_t> request_bytes;
  // The answer: what stands in `head`, and then some of the place's bytes.
  std::atomic<uint64_t> head_bytes;
  std::atomic<uint64_t> body_at;
  std::atomic<uint64_t> body_bytes;
  // While the other side goes on. Each has a line of its own, which moves to and fro.
  alignas(64) std::atomic<uint64_t> written;  ///< Of the request.
  alignas(64) std::atomic<uint64_t> filled;   ///< Of the room for the answer.
  alignas(64) std::array<std::byte, kHeadBytes> head;
};

/// Where the room for the answer to a request of this size begins.
constexpr std::size_t answer_begins(std::size_t request_bytes) {
  constexpr std::size_t kAlignment = 64;
  return (request_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Owns: a mapping, which children of this process do not have. Pages are the system's until they
/// are first written. Threads: thread-safe; what lies in it has rules of its own.
class LaneMemory {
 public:
  /// Many for small calls, and some for those of up to 4 MiB of numbers.
  static constexpr std::size_t kSmallPlaces = 32;
  static constexpr std::size_t kSmallBytes = std::size_t{64} << 10;
  static constexpr std::size_t kLargePlaces = 3;
  static constexpr std::size_t kLargeBytes = std::size_t{9} << 19;  // 4.5 MiB
  static constexpr std::size_t kPlaces = kSmallPlaces + kLargePlaces;
  static constexpr std::size_t kHeadBytes = std::size_t{16} << 10;
  static constexpr std::size_t kBytes =
      kHeadBytes + kSmallPlaces * kSmallBytes + kLargePlaces * kLargeBytes;

  /// Zeros. `descriptor`: for the other process; who asks closes it.
  /// Errors: Error kResourceExhausted.
  static LaneMemory create(int* descriptor);
  /// Errors: Error kResourceExhausted; DataLoss for what is no such memory, or might shrink.
  static LaneMemory open(int descriptor);
  LaneMemory(LaneMemory&& other) noexcept : mapped_(std::exchange(other.mapped_, nullptr)) {}
  LaneMemory& operator=(LaneMemory&&) = delete;
  ~LaneMemory();

  /// The client has asked something in a place of this one's size.
  LaneWord& asked(std::size_t index) const { return head().asked[index < kSmallPlaces ? 0 : 1]; }
  LanePlace& place(std::size_t index) const { return head().places[index]; }
  std::span<std::byte> bytes(std::size_t index) const;
  /// Not in a child of fork: it is not there.
  bool is_ours() const { return process_.is_ours(); }

 private:
  struct Head {
    std::array<LaneWord, 2> asked;  // small ones, large ones
    std::array<LanePlace, kPlaces> places;
  };
  static_assert(sizeof(Head) <= kHeadBytes);
  explicit LaneMemory(int descriptor);
  Head& head() const { return *reinterpret_cast<Head*>(mapped_); }

  std::byte* mapped_ = nullptr;
  base::ProcessMark process_;
};

/// A socket, or a memfd, of this process alone. Owns: the descriptor.
class LaneSocket {
 public:
  LaneSocket() = default;
  explicit LaneSocket(int fd);
  LaneSocket(LaneSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  LaneSocket& operator=(LaneSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~LaneSocket();
  int fd() const { return fd_; }
  /// Whether the process at the other end is of this one's user.
  bool is_of_our_user() const;
  /// Whether the other end is closed, or has sent what nobody sends.
  bool is_over() const;

 private:
  int fd_ = -1;
};

}  // namespace cohort::internal::rpc
