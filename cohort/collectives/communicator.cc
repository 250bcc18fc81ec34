// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/collectives/pending_operation.h"
#include "cohort/runtime/device_backend.h"

namespace cohort::internal::collectives {

Communicator::Pending::Pending(std::shared_ptr<PendingOperation> operation)
    : operation_(std::move(operation)) {}
Communicator::Pending::Pending(Pending&&) noexcept = default;
Communicator::Pending& Communicator::Pending::operator=(Pending&& other) noexcept {
  Pending dropped(std::move(*this));
  operation_ = std::move(other.operation_);
  return *this;
}

Communicator::Pending::~Pending() {
  if (!operation_ || operation_->done || operation_->withdrawn) return;
  Communicator& owner = *operation_->owner;
  owner.abort(std::make_exception_ptr(Cancelled(
                  "[communicator] expected every operation that was started to be waited for, got "
                  "one that was dropped")),
              operation_->name());
  owner.withdraw_all();
}

bool Communicator::Pending::has_come() const {
  if (!operation_ || operation_->done) return true;
  if (operation_->withdrawn || operation_->owner == nullptr) return false;
  return operation_->owner->has_come(*operation_);
}

void Communicator::Pending::wait() {
  const auto operation = std::exchange(operation_, nullptr);
  if (!operation || operation->done) return;
  Communicator* owner = operation->owner;
  COHORT_CHECK_STATE(owner != nullptr && operation->generation == owner->generation_,
                     "[communicator] nobody can wait any longer for this ", operation->name(),
                     ": it was begun before renew(), which has dropped it");
  if (owner->failed()) owner->withdraw_all();
  owner->check();
  owner->finish_until(*operation);
}

Communicator::Communicator() : rank_(0), size_(1) {}

Communicator::Communicator(std::unique_ptr<Transport> transport, CommunicatorOptions options)
    : recorder_(transport->size() > 1 ? std::make_shared<FlightRecorder>() : nullptr),
      transport_(recorder_ ? recorded(std::move(transport), recorder_) : nullptr),
      options_(options),
      rank_(transport_ ? transport_->rank() : 0),
      size_(transport_ ? transport_->size() : 1),
      sent_(static_cast<std::size_t>(size_)),
      received_(static_cast<std::size_t>(size_)) {}

Communicator::~Communicator() {
  if (pending_.empty()) return;
  abort(std::make_exception_ptr(Cancelled("[communicator] destroyed while operations went on")),
        pending_.front()->name());
  for (const auto& operation : pending_) operation->owner = nullptr;
  withdraw_all();
}

Exchange Communicator::exchange_with_all(const CallSignature& signature) const {
  Exchange exchange{.key = {.sequence = sequence_}, .signature = signature};
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) exchange.parts.push_back({.peer = peer});
  }
  return exchange;
}

Communicator::Operation Communicator::prepare(const CallSignature& signature,
                                              const CallOptions& options) {
  auto operation = std::make_shared<PendingOperation>();
  operation->exchange = exchange_with_all(signature);
  operation->exchange.signature.tag = options.tag;
  operation->has_reserved_place = options.place.has_value();
  if (options.place) operation->exchange.key.sequence = *options.place;
  operation->timeout = timeout(options);
  return operation;
}

Communicator::Pending Communicator::begin(Operation operation) {
  operation->generation = generation_;
  operation->owner = this;
  if (!operation->is_pair() && operation->exchange.key.sequence == sequence_) ++sequence_;
  pending_.push_back(operation);
  try {
    transport_->start(operation->exchange);
  } catch (...) {
    fail(std::current_exception(), operation->name());
  }
  return Pending(std::move(operation));
}

// One phase after the other, until there is none.
void Communicator::finish(PendingOperation& operation) {
  Exchange& exchange = operation.exchange;
  for (;;) {
    const bool looks = exchange.delivery != Exchange::Delivery::kMove;
    const Deadline deadline = deadline_in(operation.timeout);
    looks ? transport_->look(exchange, deadline) : transport_->finish(exchange, deadline);
    const bool goes_on = operation.arrived && operation.arrived(operation);
    if (looks) transport_->let_go(exchange, deadline);
    if (!goes_on) {
      if (looks) transport_->await_readers(exchange, deadline);
      break;
    }
    ++exchange.key.phase;
    transport_->start(exchange);
  }
  operation.done = true;
  give_back(std::move(operation.scratch));
}

// What has an order of its own is waited for by itself alone: another rank may start it behind the
// very operation that is waited for here.
bool Communicator::waits_for(const PendingOperation& last, const PendingOperation& earlier) {
  return &earlier == &last || !(earlier.has_own_order() || last.has_own_order());
}

bool Communicator::has_come(const PendingOperation& last) const {
  for (const Operation& operation : pending_) {
    if (waits_for(last, *operation) && !transport_->has_come(operation->exchange)) return false;
    if (operation.get() == &last) break;
  }
  return true;
}

uint64_t Communicator::reserve(uint64_t places) {
  COHORT_CHECK_STATE(!shares_memory(),
                     "[communicator.reserve] expected ranks that share no memory: what they show "
                     "each other has one order");
  return std::exchange(sequence_, sequence_ + places);
}

void Communicator::finish_until(PendingOperation& last) {
  for (std::size_t at = 0; !last.done;) {
    const Operation operation = pending_[at];
    if (!waits_for(last, *operation)) {
      ++at;
      continue;
    }
    try {
      finish(*operation);
    } catch (...) {
      fail(std::current_exception(), operation->name());
    }
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

void Communicator::withdraw_all() noexcept {
  for (const Operation& operation : pending_) {
    transport_->withdraw(operation->exchange);
    operation->withdrawn = true;
  }
  pending_.clear();
}

void Communicator::check() const {
  if (transport_ != nullptr) transport_->check();
}

void Communicator::abort(const std::exception_ptr& error, const char* operation) noexcept {
  if (transport_ != nullptr) transport_->abort(failure_of(error, rank_, size_, operation));
}

void Communicator::fail(const std::exception_ptr& error, const char* operation) {
  if (transport_ == nullptr) std::rethrow_exception(error);
  abort(error, operation);
  withdraw_all();
  transport_->check();
  std::rethrow_exception(error);
}

void Communicator::renew(CallOptions options) {
  if (transport_ != nullptr) {
    withdraw_all();
    transport_->renew(deadline_in(timeout(options)));
    sequence_ = 0;
    std::fill(sent_.begin(), sent_.end(), 0);
    std::fill(received_.begin(), received_.end(), 0);
  }
  told_.store(false);
  ++generation_;
}

std::shared_ptr<std::byte> Communicator::allocate(std::size_t bytes) {
  if (transport_ != nullptr) return transport_->allocate(bytes);
  std::shared_ptr<std::byte> memory = allocate_aligned(bytes);
  std::memset(memory.get(), 0, bytes);
  return memory;
}

std::unique_ptr<runtime::Region> Communicator::reserve_memory(std::size_t bytes) {
  return transport_ != nullptr ? transport_->reserve_memory(bytes) : nullptr;
}

void Communicator::check_rank(const char* operation, int rank, bool may_be_here) const {
  COHORT_CHECK_ARG(rank >= 0 && rank < size_ && (may_be_here || rank != rank_), operation,
                   "expected another rank of 0 to ", size_ - 1, ", got ", rank);
}

Communicator::Pending Communicator::start_barrier(CallOptions options) {
  if (size_ == 1) return {};
  return begin(prepare({.collective = Collective::kBarrier}, options));
}

void Communicator::commit(CallOptions options) {
  if (size_ == 1) return;
  try {
    transport_->check();
    for (std::size_t i = 0; i < pending_.size();) {
      if (pending_[i]->is_pair()) {
        ++i;
      } else {
        finish_until(*pending_[i]);
      }
    }
    const CallSignature signature{.collective = Collective::kCommit, .tag = options.tag};
    transport_->commit(sequence_++, signature, deadline_in(timeout(options)));
  } catch (...) {
    fail(std::current_exception(), collective_name(Collective::kCommit));
  }
}

Communicator::Pending Communicator::start_broadcast(Bytes bytes, int root, CallOptions options) {
  check_rank("[communicator.broadcast] ", root, /*may_be_here=*/true);
  if (size_ == 1) return {};
  Operation operation =
      prepare({.collective = Collective::kBroadcast, .root = root, .bytes = bytes.size()}, options);
  for (ExchangePart& part : operation->exchange.parts) {
    if (rank_ == root) part.to_peer = bytes;
    if (part.peer == root) part.from_peer = bytes;
  }
  return begin(std::move(operation));
}

Communicator::Pending Communicator::start_all_gather(std::span<const Bytes> pieces,
                                                     CallOptions options) {
  COHORT_CHECK_ARG(pieces.size() == static_cast<std::size_t>(size_),
                   "[communicator.all_gather] expected ", size_, " pieces, one for each rank, got ",
                   pieces.size());
  if (size_ == 1) return {};
  CallSignature signature{.collective = Collective::kAllGather};
  for (const Bytes piece : pieces) signature.bytes += piece.size();
  Operation operation = prepare(signature, options);
  for (ExchangePart& part : operation->exchange.parts) {
    part.to_peer = pieces[static_cast<std::size_t>(rank_)];
    part.from_peer = pieces[static_cast<std::size_t>(part.peer)];
  }
  return begin(std::move(operation));
}

Communicator::Pending Communicator::start_all_to_all(std::span<const ConstBytes> to,
                                                     std::span<const Bytes> from,
                                                     CallOptions options) {
  constexpr const char* kName = "[communicator.all_to_all] ";
  const auto here = static_cast<std::size_t>(rank_);
  COHORT_CHECK_ARG(to.size() == static_cast<std::size_t>(size_) && from.size() == to.size(), kName,
                   "expected ", size_, " pieces to send and to receive, one for each rank, got ",
                   to.size(), " and ", from.size());
  COHORT_CHECK_ARG(to[here].size() == from[here].size(), kName,
                   "expected as many bytes from this rank as to it, got ", from[here].size(),
                   " and ", to[here].size());
  copy_apart(to[here], from[here]);
  if (size_ == 1) return {};
  Operation operation = prepare({.collective = Collective::kAllToAll}, options);
  for (ExchangePart& part : operation->exchange.parts) {
    part.to_peer = to[static_cast<std::size_t>(part.peer)];
    part.from_peer = from[static_cast<std::size_t>(part.peer)];
  }
  return begin(std::move(operation));
}

Communicator::Pending Communicator::start_lend(std::span<const ConstBytes> to,
                                               std::span<const Bytes> from,
                                               std::span<ConstBytes> seen, CallOptions options) {
  const auto ranks = static_cast<std::size_t>(size_);
  const auto here = static_cast<std::size_t>(rank_);
  COHORT_CHECK_ARG(to.size() == ranks && from.size() == ranks && seen.size() == ranks,
                   "[communicator.lend] expected ", size_,
                   " pieces to lend, to receive and to see, one for each rank, got ", to.size(),
                   ", ", from.size(), " and ", seen.size());
  seen[here] = to[here];
  if (size_ == 1) return {};
  Operation operation = prepare({.collective = Collective::kAllToAll}, options);
  for (ExchangePart& part : operation->exchange.parts) {
    part.to_peer = to[static_cast<std::size_t>(part.peer)];
  }
  return begin_lending(std::move(operation), from, seen);
}

Communicator::Pending Communicator::start_lend_to_all(ConstBytes piece, std::span<const Bytes> from,
                                                      std::span<ConstBytes> seen,
                                                      CallOptions options) {
  COHORT_CHECK_ARG(from.size() == static_cast<std::size_t>(size_) && seen.size() == from.size(),
                   "[communicator.lend] expected ", size_,
                   " pieces to receive and to see, one for each rank, got ", from.size(), " and ",
                   seen.size());
  seen[static_cast<std::size_t>(rank_)] = piece;
  if (size_ == 1) return {};
  CallSignature signature{.collective = Collective::kAllGather};
  for (const Bytes each : from) signature.bytes += each.size();
  Operation operation = prepare(signature, options);
  for (ExchangePart& part : operation->exchange.parts) part.to_peer = piece;
  return begin_lending(std::move(operation), from, seen);
}

Communicator::Pending Communicator::begin_lending(Operation operation, std::span<const Bytes> from,
                                                  std::span<ConstBytes> seen) {
  operation->exchange.delivery = Exchange::Delivery::kLend;
  for (ExchangePart& part : operation->exchange.parts) {
    if (!part.to_peer.empty() && !can_lend(part.to_peer)) note_copied(part.to_peer.size());
    part.from_peer = from[static_cast<std::size_t>(part.peer)];
  }
  operation->arrived = [seen](PendingOperation& self) {
    for (const ExchangePart& part : self.exchange.parts) {
      seen[static_cast<std::size_t>(part.peer)] = part.seen;
    }
    return false;
  };
  return begin(std::move(operation));
}

Communicator::Pending Communicator::begin_pair(const ExchangePart& part, uint64_t sequence,
                                               const CallOptions& options) {
  auto operation = std::make_shared<PendingOperation>();
  const std::size_t bytes = part.sends ? part.to_peer.size() : part.from_peer.size();
  operation->exchange.key = {.channel = ExchangeKey::Channel::kPair, .sequence = sequence};
  operation->exchange.signature = {
      .collective = Collective::kSend, .bytes = bytes, .tag = options.tag};
  operation->exchange.parts.push_back(part);
  operation->timeout = timeout(options);
  return begin(std::move(operation));
}

Communicator::Pending Communicator::start_send(ConstBytes bytes, int to, CallOptions options) {
  check_rank("[communicator.send] ", to, /*may_be_here=*/false);
  return begin_pair({.peer = to, .receives = false, .to_peer = bytes},
                    sent_[static_cast<std::size_t>(to)]++, options);
}

Communicator::Pending Communicator::start_receive(Bytes bytes, int from, CallOptions options) {
  check_rank("[communicator.receive] ", from, /*may_be_here=*/false);
  return begin_pair({.peer = from, .sends = false, .from_peer = bytes},
                    received_[static_cast<std::size_t>(from)]++, options);
}

void Communicator::barrier(CallOptions options) { start_barrier(options).wait(); }
void Communicator::broadcast(Bytes bytes, int root, CallOptions options) {
  start_broadcast(bytes, root, options).wait();
}
void Communicator::all_gather(std::span<const Bytes> pieces, CallOptions options) {
  start_all_gather(pieces, options).wait();
}
void Communicator::all_to_all(std::span<const ConstBytes> to, std::span<const Bytes> from,
                              CallOptions options) {
  start_all_to_all(to, from, options).wait();
}
void Communicator::send(ConstBytes bytes, int to, CallOptions options) {
  start_send(bytes, to, options).wait();
}
void Communicator::receive(Bytes bytes, int from, CallOptions options) {
  start_receive(bytes, from, options).wait();
}

}  // namespace cohort::internal::collectives
