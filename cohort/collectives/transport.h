// SPDX-License-Identifier: Apache-2.0
//
// What a communicator needs of the way bytes travel: an exchange of messages between ranks, and
// that all hear of a failure. Nothing here adds numbers. One folder of transports/ for each kind.
#pragma once

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>

#include "cohort/base/error.h"
#include "cohort/collectives/options.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal::runtime {
class Region;
}  // namespace cohort::internal::runtime
namespace cohort::internal::collectives {

using ConstBytes = std::span<const std::byte>;
using Bytes = std::span<std::byte>;
using Deadline = std::chrono::steady_clock::time_point;

/// So long from `now`; a century at most, where longer times would be in the past.
inline Deadline deadline_in(std::chrono::milliseconds timeout,
                            Deadline now = std::chrono::steady_clock::now()) {
  constexpr std::chrono::hours kCentury{24 * 365 * 100};
  return now + std::min<std::chrono::milliseconds>(timeout, kCentury);
}

enum class Collective : uint8_t {
  kBarrier,
  kCommit,
  kBroadcast,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kSend,
};
/// "all_reduce", ...
const char* collective_name(Collective collective);

/// What every rank has to call alike; it travels ahead of the bytes.
struct CallSignature {
  Collective collective = Collective::kBarrier;
  int root = 0;                    ///< Of a broadcast.
  uint64_t bytes = 0;              ///< All together, on one rank.
  DType dtype = DType::Undefined;  ///< Where numbers are added.
  ReduceOp op = ReduceOp::kSum;
  uint64_t tag = 0;  ///< The caller's: which of its calls this is.
  bool operator==(const CallSignature&) const = default;
};
/// "all_reduce(sum of float32, 40 bytes, tag 7)".
std::string signature_text(const CallSignature& signature);
/// Errors: FailedPrecondition that names both sides, the lower rank first, unless they are equal.
void check_same_signature(const CallSignature& mine, int rank, const CallSignature& theirs,
                          int peer);
/// Errors: FailedPrecondition that names both sides, if a message is of another length than the
///         memory for it.
void check_same_length(const CallSignature& signature, int rank, std::size_t expected, int peer,
                       std::size_t got);

/// Which exchange a message belongs to: messages meet by it, whatever their order. Ranks count
/// what they call together, and each pair what it sends each other.
struct ExchangeKey {
  enum class Channel : uint8_t { kCollective, kPair };
  Channel channel = Channel::kCollective;
  uint8_t phase = 0;
  uint64_t sequence = 0;
  auto operator<=>(const ExchangeKey&) const = default;  // NOLINT(modernize-use-nullptr): its own 0
};

/// What travels between this rank and another one in an exchange.
struct ExchangePart {
  int peer = 0;
  bool sends = true;  ///< A message goes there, also one without bytes.
  bool receives = true;
  ConstBytes to_peer = {};
  Bytes from_peer = {};
  ConstBytes seen = {};  ///< What Transport::look() shows of it.
};

/// Threads: bound to its communicator.
struct Exchange {
  /// Where what comes is wanted.
  enum class Delivery : uint8_t {
    kMove,  ///< In from_peer.
    kLook,  ///< Where look() shows it, until let_go(). With a transport that shares_memory(),
            ///< from_peer only says how much there is.
    kLend,  ///< Where look() shows it, for as long as the ranks' own rules say: from_peer, or the
            ///< peer's memory, if that came from allocate().
  };
  Delivery delivery = Delivery::kMove;
  ExchangeKey key = {};
  CallSignature signature = {};
  c10::SmallVector<ExchangePart, 8> parts = {};
};

/// Why a generation has ended: as every rank gets to know it, so plain data.
struct Failure {
  ErrorCode code = ErrorCode::kUnknown;
  std::string text = {};
  int rank = 0;  ///< Where it came from.
};
/// The failure behind an exception, as rank `rank` tells it the others.
Failure failure_of(const std::exception_ptr& error, int rank, int size, const char* operation);
/// Throws the class of cohort/base/error.h with the failure's code.
[[noreturn]] void throw_failure(const Failure& failure);

/// Threads: one caller at a time, but for abort() and failed(). Order: by keys, not by time.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Begins to send and to receive; the memory of its parts stays as it is until finish() or
  /// withdraw() has returned. Blocks: never for another rank.
  virtual void start(const Exchange& exchange) = 0;
  /// Moves what can be moved now of what was started. Blocks: never. Errors: none; who waits sees
  ///         them. Default: whatever carries the bytes needs nobody for it.
  virtual void go_on() {}
  /// Waits until everything has been received, and what was sent may be written again.
  /// Errors: FailedPrecondition as check_same_signature, before a byte is delivered;
  ///         DeadlineExceeded that names the ranks that have not come; the failure after abort().
  ///         The exchange is withdrawn then.
  virtual void finish(const Exchange& exchange, Deadline deadline) = 0;
  /// Whether finish() or look() of what was started would wait for nobody, as far as go_on() has
  /// moved it; false where a transport cannot say. Blocks: never.
  virtual bool has_come(const Exchange&) { return false; }
  /// Whether ranks can read each other's memory where it is.
  virtual bool shares_memory() const { return false; }
  /// As finish(), but leaves the bytes where they are and shows them as the parts' `seen`; what was
  /// sent may be still read.
  virtual void look(Exchange& exchange, Deadline deadline);
  /// start(), then look(), of who does nothing in between. Returns the deadline.
  virtual Deadline start_and_look(Exchange& exchange, std::chrono::milliseconds timeout) {
    start(exchange);
    const Deadline deadline = deadline_in(timeout);
    look(exchange, deadline);
    return deadline;
  }
  /// After look(), when all has been read. Errors: the failure, if it was no more what was sent.
  virtual void let_go(const Exchange&, Deadline) {}
  /// After let_go(): waits until what was sent may be written again. Errors: as finish().
  virtual void await_readers(const Exchange&, Deadline) {}
  /// Gives up an exchange that was started: afterwards nobody reads or writes its memory.
  virtual void withdraw(const Exchange& exchange) noexcept = 0;

  /// Returns when all ranks have called it with this sequence. If it returns on one rank, it does
  /// on all: a transport on which somebody may pass and another not know of it, because a third one
  /// dies meanwhile, asks others before it throws. Errors: as finish().
  virtual void commit(uint64_t sequence, const CallSignature& signature, Deadline deadline) = 0;

  /// Ends the generation on all ranks: who waits wakes, who comes later fails, and all get the
  /// first failure. Blocks: never. Threads: any.
  virtual void abort(const Failure& failure) noexcept = 0;
  /// The same for who knows that these ranks will not answer (they hang, are stopped or cut off):
  /// nobody waits for them any more, in this generation or a later one. Blocks: never.
  /// Threads: any.
  virtual void lose(std::span<const int> ranks, const Failure& failure) noexcept;
  /// True from the first failure of this generation on. Threads: any.
  virtual bool failed() const = 0;
  /// Throws the first failure of this generation, if there is one. Threads: any.
  virtual void check() const = 0;

  /// Waits until all ranks have come, forgets the failure and all messages, and begins the next
  /// generation. No exchange may be under way here. Errors: DeadlineExceeded that names who is
  /// missing; the generation stays as it was.
  virtual void renew(Deadline deadline) = 0;

  /// Memory from which sending is cheapest: zeros, 64-byte aligned. Errors: Error
  ///         kResourceExhausted.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes);
  /// As allocate(), of address space that gets memory where it is written, and may outlive the
  /// transport. Null where ranks share none, or it is not to be had. Errors: none.
  virtual std::unique_ptr<runtime::Region> reserve_memory(std::size_t bytes);
  /// Whether the other ranks can read these bytes where they are, if they are lent.
  virtual bool can_lend(ConstBytes) const { return false; }
};

/// Memory that starts on 64 bytes. Errors: Error kResourceExhausted.
std::shared_ptr<std::byte> allocate_aligned(std::size_t bytes);

}  // namespace cohort::internal::collectives
