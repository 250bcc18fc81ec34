// SPDX-License-Identifier: Apache-2.0
//
// The class behind connect_over_tcp(): streams, alarms and, where all ranks are on one machine, the
// memory that they share (shared_transport.cc).
#pragma once

#include <poll.h>

#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/collectives/transports/mpi/mpi_lanes.h"
#include "cohort/collectives/transports/shared_memory/inbox.h"
#include "cohort/collectives/transports/shared_memory/meeting.h"
#include "cohort/collectives/transports/shared_memory/patience.h"
#include "cohort/collectives/transports/tcp/alarms.h"
#include "cohort/collectives/transports/tcp/mesh.h"
#include "cohort/collectives/transports/tcp/stream.h"

namespace cohort::internal::collectives {

/// Threads: as Transport.
class TcpTransport final : public Transport {
 public:
  TcpTransport(int rank, std::vector<MeshLink> links);
  ~TcpTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(streams_.size()); }
  void start(const Exchange& exchange) override;
  void go_on() override { move_messages(); }
  void finish(const Exchange& exchange, Deadline deadline) override;
  bool has_come(const Exchange& exchange) override;
  bool shares_memory() const override { return shared_ != nullptr; }
  void look(Exchange& exchange, Deadline deadline) override;
  void let_go(const Exchange& exchange, Deadline deadline) override;
  void await_readers(const Exchange& exchange, Deadline deadline) override;
  void withdraw(const Exchange& exchange) noexcept override;
  void commit(uint64_t sequence, const CallSignature& signature, Deadline deadline) override;
  void abort(const Failure& failure) noexcept override {
    alarms_->propose(failure);
    tell_lanes();
  }
  void lose(std::span<const int> ranks, const Failure& failure) noexcept override {
    alarms_->lose(ranks, failure);
    tell_lanes();
  }
  bool failed() const override { return alarms_->failed(); }
  void check() const override { alarms_->check(); }
  void renew(Deadline deadline) override;
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  std::unique_ptr<runtime::Region> reserve_memory(std::size_t bytes) override;
  bool can_lend(ConstBytes bytes) const override { return shared_ && shared_->is_in_heap(bytes); }

  /// Moves the messages between ranks of one machine into memory that they share. All ranks call
  /// it, first of all. `machine`: as MeshOptions.
  void share_memory(const std::string& machine, Deadline deadline);
  /// The same for MPI. Errors: Unimplemented without it; FailedPrecondition unless mpirun has
  ///         started these ranks and nobody else.
  void move_to_mpi(Deadline deadline);

 private:
  // `is_here(stream)` of each of the peers, and meanwhile all that comes is read.
  // Errors: the failure, Unavailable and DeadlineExceeded that name who is missing.
  static constexpr auto kNever = [] { return false; };
  struct Shown {
    SharedBoard::Shown what;
    ExchangeKey key;
  };
  struct Wait {
    std::span<const int> peers;
    base::FunctionRef<bool(const TcpStream&)> is_here;
    const CallSignature* signature = nullptr;  // of what is waited for,
    const char* what = "";                     // or its name
    bool heeds_failures = true;
    /// What shared memory shows by itself, without a message; it was looked for in vain already.
    base::FunctionRef<bool()> is_over = kNever;
    std::optional<Shown> shown = {};  ///< What of them it is.
    bool has_looked = false;
    std::string text() const { return signature != nullptr ? signature_text(*signature) : what; }
  };
  TcpStream& stream(int peer) { return *streams_[static_cast<std::size_t>(peer)]; }
  std::string who_misses(const Wait& wait) const;
  void wait_for(const Wait& wait, Deadline deadline);
  void check_ended(const Wait& wait);
  void await_copies() noexcept;
  void await_lanes(Deadline deadline);
  void empty_lanes() noexcept;
  // Whether a rank is missing is told as soon as it is known: a program may exit at any time.
  void tell_lanes() noexcept {
    if (lanes_ && alarms_->misses_ranks()) lanes_->set_incomplete(true);
  }
  void move_messages();
  bool sleep_until(Deadline deadline, const Wait& wait);
  bool sleep_at_bell(Deadline deadline, const Wait& wait);
  bool nap(Deadline deadline);
  bool meets(const Exchange& exchange) const { return shared_ && shared_->takes(exchange); }
  bool look_for(base::FunctionRef<bool()> is_over);
  void wait_by_looking(Wait wait, Deadline deadline);
  void meet(const Exchange& exchange, Deadline deadline);
  void start_meeting(const Exchange& exchange);
  void move(const Exchange& exchange, Deadline deadline,
            base::FunctionRef<bool(const ExchangePart&)> wants);
  void finish_meeting(const Exchange& exchange, Deadline deadline);
  void finish_streams(const Exchange& exchange, Deadline deadline);
  bool has_come(const ExchangePart& part, const ExchangeKey& key) {
    return (!part.receives || stream(part.peer).has_come(key)) &&
           (!part.sends || stream(part.peer).is_sent(key));
  }
  template <class T>
  std::vector<T> told_by_all(uint64_t question, const T& mine, Deadline deadline);
  void commit_as_first(const ExchangeKey& key, const CallSignature& signature, Deadline deadline);
  void commit_as_other(const ExchangeKey& key, const CallSignature& signature, Deadline deadline);
  bool has_committed(const ExchangeKey& answer, const std::exception_ptr& error);
  Exchange arrivals(const ExchangeKey& key, const CallSignature& signature) const;
  void commit_at_meeting(const ExchangeKey& key, const CallSignature& signature, Deadline deadline);

  const int rank_;
  std::vector<int> others_;
  uint64_t generation_ = 0;
  uint64_t renewing_ = 0;                            // the newest generation that all were told of
  std::vector<std::unique_ptr<TcpStream>> streams_;  // [peer]; of this rank itself: none
  std::vector<pollfd> polled_;
  // Null: all messages travel over the connections. Else those to ranks of this machine go through
  // memory, and with no others there is a meeting, too.
  std::unique_ptr<SharedInbox> inbox_;
  std::unique_ptr<SharedMeeting> shared_;
  bool has_address_space_ = false;  // and so have the others
  uint32_t rings_ = 0;              // of the inbox's bell, before the last look
  std::optional<Patience> patience_;
  std::unique_ptr<MpiLanes> lanes_;    // null: no MPI
  unsigned naps_ = 0;                  // of the wait that goes on, since bytes have moved
  std::unique_ptr<TcpAlarms> alarms_;  // last: it rings the inbox's bell
};

// Before any operation of a communicator, whose keys have another phase.
template <class T>
std::vector<T> TcpTransport::told_by_all(uint64_t question, const T& mine, Deadline deadline) {
  std::vector<T> answers(streams_.size(), mine);
  Exchange exchange{.key = {.channel = ExchangeKey::Channel::kPair,
                            .phase = std::numeric_limits<uint8_t>::max(),
                            .sequence = question},
                    .signature = {.collective = Collective::kAllGather, .bytes = sizeof(T)}};
  for (const int peer : others_) {
    exchange.parts.push_back({.peer = peer,
                              .to_peer = std::as_bytes(std::span(&mine, 1)),
                              .from_peer = std::as_writable_bytes(
                                  std::span(answers).subspan(static_cast<std::size_t>(peer), 1))});
  }
  start(exchange);
  finish(exchange, deadline);
  return answers;
}

}  // namespace cohort::internal::collectives
