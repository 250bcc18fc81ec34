// SPDX-License-Identifier: Apache-2.0
//
// How the processes of a job talk: what strategies, variables and updates call, whatever carries
// the bytes.
//
//   communicator.all_reduce(bytes_of(sums), kFloat32);
//   auto pending = communicator.start_broadcast(bytes_of(weights), /*root=*/0);
//   ...                                      // something else meanwhile
//   pending.wait();
//
// Every rank calls the same operations in the same order, from one thread at a time; waiting for
// one finishes those that were started before it. No operation ends on any rank before all ranks
// have called it, and each compares its signature (operation, bytes, dtype, tag) with all others'.
// Sums are in rank order, whatever the transport: the adding is done here.
//
// Whatever goes wrong on one rank ends the generation on all of them: everybody who waits or comes
// later gets an error of the same class, which names the rank that failed and its operation, and
// nothing that was sent before is delivered any more. renew() begins the next generation. Wrong
// arguments (InvalidArgument) are this rank's alone: whoever lets such an error end the work calls
// abort() with it, as for any other error that keeps this rank from the next operation.
//
// Whoever may be called by several threads of one rank takes turns: take_turn(). A turn is also
// what a failure ends: the rank it came from and all others throw it once, and the next turn begins
// the next generation.
//
// One rank is the identity: no transport, no wait, no copy but from one given place to another.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/boot_clock.h"
#include "cohort/base/function_ref.h"
#include "cohort/base/mutex.h"
#include "cohort/collectives/flight_recorder.h"
#include "cohort/collectives/transport.h"

namespace cohort::internal::runtime {
class ReplicaGroup;
}  // namespace cohort::internal::runtime
namespace cohort::internal::cluster {
class Store;
}  // namespace cohort::internal::cluster
namespace cohort::internal::collectives {

/// The bytes of numbers in a row.
template <class Numbers>
Bytes bytes_of(Numbers& numbers) {
  return std::as_writable_bytes(std::span(numbers));
}

struct CommunicatorOptions {
  /// The most that any operation waits for other ranks.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

/// Of one call.
struct CallOptions {
  uint64_t tag = 0;  ///< Tells calls of one kind apart in errors; compared as the rest.
  std::optional<std::chrono::milliseconds> timeout = {};  ///< Unset: the communicator's.
  /// One of reserve()'s, each once. Unset: the next one.
  std::optional<uint64_t> place = {};
};

struct PendingOperation;

/// Memory into which what is to be added is received.
struct CommunicatorScratch {
  std::shared_ptr<std::byte> memory = {};
  std::size_t bytes = 0;
};

/// Threads: one caller at a time, but for take_turn(), abort(), failed() and check(), from any
/// thread.
class Communicator {
 public:
  /// An operation that goes on. The memory it was given stays there and as it is until wait() has
  /// returned or thrown. Threads: bound to the communicator's caller.
  class [[nodiscard]] Pending {
   public:
    Pending() = default;  ///< One that is over.
    /// Dropping one that was not waited for ends the generation: others would wait for ever.
    ~Pending();
    Pending(Pending&&) noexcept;
    Pending& operator=(Pending&&) noexcept;
    /// Whether wait() would wait for nobody; false where the transport cannot say. Never an error.
    /// Blocks: never.
    bool has_come() const;
    /// Errors: of the operation; FailedPrecondition if a renew() has come in between.
    void wait();

   private:
    friend class Communicator;
    explicit Pending(std::shared_ptr<PendingOperation> operation);
    std::shared_ptr<PendingOperation> operation_;
  };

  /// One rank.
  Communicator();
  explicit Communicator(std::unique_ptr<Transport> transport, CommunicatorOptions options = {});
  /// What still goes on ends by an error on every rank.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Waits for all ranks. Errors: DeadlineExceeded that names who is missing.
  void barrier(CallOptions options = {});
  /// A barrier that no rank passes unless all do, whoever fails meanwhile. What the caller does
  /// after it must not fail.
  void commit(CallOptions options = {});
  /// The bytes of `root`, everywhere. Errors: InvalidArgument for a rank that is not there.
  void broadcast(Bytes bytes, int root, CallOptions options = {});
  /// Numbers of all ranks reduced in rank order, in their place, everywhere the same bits.
  /// Errors: InvalidArgument for bytes that are no whole numbers, and for a dtype that `op` does
  ///         not take (means of integers, sums of bool, minima of complex numbers).
  void all_reduce(Bytes numbers, DType dtype, ReduceOp op = ReduceOp::kSum,
                  CallOptions options = {});
  /// `pieces`: one for each rank, as long everywhere. The reduction of all ranks' pieces for this
  /// one, in rank order. `out` may be this rank's piece. Errors: as all_reduce(), and for lengths.
  void reduce_scatter(std::span<const ConstBytes> pieces, Bytes out, DType dtype,
                      ReduceOp op = ReduceOp::kSum, CallOptions options = {});
  /// `pieces`: one for each rank, of any lengths, which all ranks know; sends this rank's and
  /// receives the others'.
  void all_gather(std::span<const Bytes> pieces, CallOptions options = {});
  /// Sends `to[r]` to each rank r and receives `from[r]`; this rank's own is copied unless both are
  /// the same memory. to[r] here is as long as from[this rank] on r.
  void all_to_all(std::span<const ConstBytes> to, std::span<const Bytes> from,
                  CallOptions options = {});
  /// Between two ranks alone; each direction of a pair has an order of its own, and they are waited
  /// for in any. Blocks: send() perhaps until the peer receives, no longer.
  /// Errors: InvalidArgument for itself as the peer.
  void send(ConstBytes bytes, int to, CallOptions options = {});
  void receive(Bytes bytes, int from, CallOptions options = {});

  /// The same, begun here and waited for later.
  Pending start_barrier(CallOptions options = {});
  Pending start_broadcast(Bytes bytes, int root, CallOptions options = {});
  Pending start_all_reduce(Bytes numbers, DType dtype, ReduceOp op = ReduceOp::kSum,
                           CallOptions options = {});
  Pending start_reduce_scatter(std::span<const ConstBytes> pieces, Bytes out, DType dtype,
                               ReduceOp op = ReduceOp::kSum, CallOptions options = {});
  Pending start_all_gather(std::span<const Bytes> pieces, CallOptions options = {});
  Pending start_all_to_all(std::span<const ConstBytes> to, std::span<const Bytes> from,
                           CallOptions options = {});
  Pending start_send(ConstBytes bytes, int to, CallOptions options = {});
  Pending start_receive(Bytes bytes, int from, CallOptions options = {});

  /// As start_all_to_all(), but a piece that lies in memory of allocate() need not move: once
  /// waited for, seen[r] is where rank r's piece for this rank can be read, which is from[r], or
  /// rank r's own memory. The ranks have rules of their own for how long: who lends a piece writes
  /// it again only behind a later operation that all others start when they have read it. `seen`
  /// stays.
  Pending start_lend(std::span<const ConstBytes> to, std::span<const Bytes> from,
                     std::span<ConstBytes> seen, CallOptions options = {});
  /// The same of start_all_gather(): `piece` for everybody.
  Pending start_lend_to_all(ConstBytes piece, std::span<const Bytes> from,
                            std::span<ConstBytes> seen, CallOptions options = {});
  /// Moves what was started and can be moved without waiting: for who computes meanwhile.
  void go_on() {
    if (transport_ != nullptr && !transport_->failed()) transport_->go_on();
  }
  /// Places in the order of operations of all ranks that were taken in this generation.
  uint64_t operations() const { return sequence_; }
  /// Takes so many places, and returns the first one, for operations (CallOptions::place) that one
  /// rank may start before others and another rank behind them. All ranks call it alike, and each
  /// of these operations is started by all of them or by none. Each is waited for by itself alone.
  /// Errors: FailedPrecondition where ranks share memory, who have no use for it.
  uint64_t reserve(uint64_t places);

  /// Whether ranks can read each other's memory of allocate() where it is.
  bool shares_memory() const { return transport_ != nullptr && transport_->shares_memory(); }

  /// Ends the generation on all ranks by `error`; the first one counts. `operation` is what this
  /// rank was at. Blocks: never. Threads: any.
  void abort(const std::exception_ptr& error, const char* operation) noexcept;
  /// abort(), then throws what all ranks throw. Threads: the caller's.
  [[noreturn]] void fail(const std::exception_ptr& error, const char* operation);
  /// abort() by who knows that these ranks will not answer: nobody waits for them any more.
  /// Blocks: never. Threads: any.
  void lose(std::span<const int> ranks, const Failure& failure) noexcept;
  /// "in strategy.run, step 37, waiting in barrier(0 bytes) for 2 s": what this rank is at, for
  /// those who miss it. Threads: any.
  std::string doing() const;
  /// What this rank has lately called, and how fast it is. Threads: any.
  Pace pace() const { return recorder_ ? recorder_->pace() : Pace(); }
  /// When transports fail, a report of it goes to the log, and of all that is known to the folder
  /// that COHORT_FLIGHT_RECORDER names. `others`: what they are at, a line each; may take a
  /// moment. Threads: any.
  void set_others_report(std::function<std::string()> others);
  bool failed() const { return transport_ != nullptr && transport_->failed(); }
  /// Throws the failure of this generation, if there is one.
  void check() const;

  /// Calls body as this rank's part of what all ranks do together. Nothing else that takes a turn
  /// here comes in between, and what body throws ends the generation on all ranks. Inside of a
  /// turn, its thread's or that of the run of `run` that it is, just calls body. With one rank,
  /// too. `operation`: for error texts. Blocks: while another thread of this rank has the turn.
  /// Errors: what ended the generation, alike on every rank; where it was this rank and not one
  ///         of Cohort's classes, as body threw it. A failure that came when this rank had no turn,
  ///         or had ended it, is thrown by its next one, before body. The turn after the one that
  ///         threw renews first, so it throws what renew() does.
  void take_turn(const char* operation, base::FunctionRef<void()> body,
                 const runtime::ReplicaGroup* run = nullptr);
  /// Calls body beside a run that has the turn, and computes: nothing that takes a turn inside of
  /// it comes in between. Where such a thing goes on, or no run has the turn, body is not called,
  /// and false returned. Blocks: never but in body. Threads: one at a time, not the one that has
  /// the turn.
  bool beside_turn(base::FunctionRef<void()> body);
  /// For what is no turn, but leaves the others waiting if it fails (a loop of many turns): what
  /// body throws ends the generation, and is thrown as by a turn. What one of its turns has thrown
  /// has done so already: another thread may have begun the next generation since.
  void guard(const char* operation, base::FunctionRef<void()> body);

  /// Begins the next generation, together with all ranks: nothing that was sent before arrives
  /// after it. Errors: DeadlineExceeded that names who is missing.
  void renew(CallOptions options = {});
  /// Counts renew(). Threads: any.
  uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }

  /// To be asked right before what a process that is late must not write.
  /// Errors: FailedPrecondition if the others have given this rank up: it was stopped or cut off.
  /// Threads: any. Cost: reads the clock.
  void check_lease() const;
  /// By who renews it; without a call it has no end. Threads: any.
  void set_lease(base::BootClock::time_point end) {
    lease_end_.store(end.time_since_epoch().count(), std::memory_order_relaxed);
  }

  /// What the job's processes agree on beside their tensors; null where nobody has set one.
  const std::shared_ptr<cluster::Store>& store() const { return store_; }
  /// Threads: before any other member is called.
  void set_store(std::shared_ptr<cluster::Store> store) { store_ = std::move(store); }

  /// Memory from which operations send without a copy: zeros, 64-byte aligned.
  /// Errors: Error kResourceExhausted.
  std::shared_ptr<std::byte> allocate(std::size_t bytes);
  /// The same of address space, which gets memory where it is written and may outlive this. Null
  /// where ranks share none, or the system gives none. Threads: any.
  std::unique_ptr<runtime::Region> reserve_memory(std::size_t bytes);
  /// Whether the others can read these bytes where they are, if they are lent.
  bool can_lend(ConstBytes bytes) const {
    return transport_ != nullptr && transport_->can_lend(bytes);
  }
  /// Whoever copies what it could lend elsewhere says so.
  void note_copied(std::size_t bytes) { copied_ += bytes; }
  /// Bytes that were copied to be lent, by those who say so, or because they lay in no memory that
  /// others can read.
  uint64_t copied() const { return copied_; }

 private:
  using Operation = std::shared_ptr<PendingOperation>;
  Pending begin_lending(Operation operation, std::span<const Bytes> from,
                        std::span<ConstBytes> seen);
  Exchange exchange_with_all(const CallSignature& signature) const;
  Operation prepare(const CallSignature& signature, const CallOptions& options);
  Pending begin(Operation operation);
  Pending begin_pair(const ExchangePart& part, uint64_t sequence, const CallOptions& options);
  void finish(PendingOperation& operation);
  void finish_until(PendingOperation& operation);
  static bool waits_for(const PendingOperation& last, const PendingOperation& earlier);
  bool has_come(const PendingOperation& last) const;
  Pending start_all_reduce_of(std::size_t bytes, Bytes numbers, DType dtype, ReduceOp op,
                              const CallOptions& options);
  void reduce_at_once(Bytes numbers, DType dtype, ReduceOp op, const CallOptions& options);
  CommunicatorScratch receive_to_look(Exchange& exchange, std::size_t bytes);
  CommunicatorScratch scratch(std::size_t bytes);
  void give_back(CommunicatorScratch scratch);
  void withdraw_all() noexcept;
  bool has_turn() const;
  void turn(const char* operation, base::FunctionRef<void()> body,
            const runtime::ReplicaGroup* run);
  void turn_within(base::FunctionRef<void()> body);
  void note_turn(const char* operation, bool is_step);
  void begin_turn();
  void report_failure() const;
  [[noreturn]] void throw_agreed(const std::exception_ptr& mine, const char* operation);
  void check_rank(const char* operation, int rank, bool may_be_here) const;
  std::chrono::milliseconds timeout(const CallOptions& options) const {
    return options.timeout.value_or(options_.timeout);
  }

  const std::shared_ptr<FlightRecorder> recorder_;  // null: one rank
  const std::unique_ptr<Transport> transport_;      // null: one rank
  const CommunicatorOptions options_;
  const int rank_;
  const int size_;
  std::atomic<uint64_t> generation_ = 0;
  uint64_t sequence_ = 0;           // of operations of all ranks
  std::vector<uint64_t> sent_;      // [peer]
  std::vector<uint64_t> received_;  // [peer]
  uint64_t copied_ = 0;
  std::deque<Operation> pending_;  // in the order they were started
  std::vector<CommunicatorScratch> spares_;

  base::Mutex turn_;
  std::atomic<std::thread::id> holder_{};                    // of the turn
  std::atomic<const runtime::ReplicaGroup*> run_ = nullptr;  // that is the turn
  base::Mutex within_;                                       // of turns inside of the turn,
  std::atomic<std::thread::id> within_holder_{};
  std::atomic<bool> told_ = false;  // the failure of this generation was thrown

  mutable base::Mutex doing_mutex_;
  std::array<char, 48> doing_ COHORT_GUARDED_BY(doing_mutex_) = {};  // the turn's operation
  uint64_t steps_ COHORT_GUARDED_BY(doing_mutex_) = 0;               // turns that were runs
  std::function<std::string()> others_report_ COHORT_GUARDED_BY(doing_mutex_);
  std::shared_ptr<cluster::Store> store_;
  std::atomic<base::BootClock::rep> lease_end_ = std::numeric_limits<base::BootClock::rep>::max();
};

}  // namespace cohort::internal::collectives
