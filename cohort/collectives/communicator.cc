// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/communicator.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/reductions/local_reduce.h"

namespace cohort::internal {

// Something that is under way, or over.
struct PendingOperation {
  Exchange exchange = {};
  std::chrono::milliseconds timeout{};
  uint64_t generation = 0;
  Communicator* owner = nullptr;  // null: gone
  bool done = false;
  bool withdrawn = false;
  CommunicatorScratch scratch = {};
  // When a phase has arrived. True: the exchange is that of the next phase now, which begins.
  std::function<bool(PendingOperation&)> arrived = {};

  bool is_pair() const { return exchange.key.channel == ExchangeKey::Channel::kPair; }
  const char* name() const { return collective_name(exchange.signature.collective); }
};

namespace {

// A large all_reduce goes in blocks: one is added while the next one travels, and what comes is
// still in the cache when it is added.
constexpr std::size_t kBlockBytesOfRank = std::size_t{512} << 10;
constexpr std::size_t kMostSpares = 4;

// Up to here numbers are sent whole and added everywhere: one round trip instead of two.
constexpr std::size_t kWholeBytes = std::size_t{16} << 10;

using Operation = PendingOperation;

std::size_t count_of(const char* operation, std::size_t bytes, DType dtype, ReduceOp op) {
  check_reducible(operation, op, dtype);
  const std::size_t item = c10::elementSize(dtype);
  COHORT_CHECK_ARG(bytes % item == 0, operation, "expected whole numbers of ", dtype_name(dtype),
                   " (", item, " bytes each), got ", bytes, " bytes");
  return bytes / item;
}

// What all ranks have brought of the same numbers, added in rank order.
class RankedSources {
 public:
  // `others`: what came from the other ranks, one after the other.
  RankedSources(int rank, int size, const std::byte* own, const std::byte* others,
                std::size_t bytes) {
    for (int r = 0; r < size; ++r) {
      sources_.push_back(r == rank ? own : others + bytes * part_index(r, rank));
    }
  }
  void reduce(DType dtype, ReduceOp op, std::byte* out, std::size_t count) const {
    void* const outs[] = {out};
    reduce_range({.op = op,
                  .dtype = dtype,
                  .sources = {sources_.data(), sources_.size()},
                  .outs = outs,
                  .begin = 0,
                  .end = static_cast<int64_t>(count),
                  .divisor = static_cast<double>(sources_.size())});
  }
  /// Where rank r's part stands among those of all but `rank`.
  static std::size_t part_index(int r, int rank) {
    return static_cast<std::size_t>(r < rank ? r : r - 1);
  }

 private:
  c10::SmallVector<const void*, 8> sources_;
};

void copy_apart(ConstBytes from, Bytes to) {
  if (from.data() != to.data() && !from.empty()) {
    std::memmove(to.data(), from.data(), from.size());
  }
}

std::size_t total_bytes(std::span<const ConstBytes> pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), std::size_t{0},
                         [](std::size_t sum, ConstBytes piece) { return sum + piece.size(); });
}

// The elements of a row that rank r adds up for all.
Bytes segment(Bytes numbers, std::size_t item, int rank, int size) {
  const std::size_t count = numbers.size() / item;
  const auto border = [&](int r) {
    return count * static_cast<std::size_t>(r) / static_cast<std::size_t>(size) * item;
  };
  return numbers.subspan(border(rank), border(rank + 1) - border(rank));
}

}  // namespace

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

void Communicator::Pending::wait() {
  const auto operation = std::exchange(operation_, nullptr);
  if (!operation || operation->done) return;
  Communicator* owner = operation->owner;
  COHORT_CHECK_STATE(owner != nullptr && operation->generation == owner->generation_,
                     "[communicator] expected to wait for an operation of this generation, got ",
                     operation->name(), " that an earlier one has left");
  if (owner->failed()) owner->withdraw_all();
  owner->check();
  owner->finish_until(*operation);
}

Communicator::Communicator() : rank_(0), size_(1) {}

Communicator::Communicator(std::unique_ptr<Transport> transport, CommunicatorOptions options)
    : transport_(transport->size() > 1 ? std::move(transport) : nullptr),
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
  operation->timeout = timeout(options);
  return operation;
}

Communicator::Pending Communicator::begin(Operation operation) {
  operation->generation = generation_;
  operation->owner = this;
  if (!operation->is_pair()) ++sequence_;
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
  for (;;) {
    transport_->finish(operation.exchange, std::chrono::steady_clock::now() + operation.timeout);
    if (!operation.arrived || !operation.arrived(operation)) break;
    ++operation.exchange.key.phase;
    transport_->start(operation.exchange);
  }
  operation.done = true;
  give_back(std::move(operation.scratch));
}

// Fresh memory would be page-faulted anew by every operation.
CommunicatorScratch Communicator::scratch(std::size_t bytes) {
  for (CommunicatorScratch& spare : spares_) {
    if (spare.bytes < bytes) continue;
    CommunicatorScratch found = std::move(spare);
    spare = std::move(spares_.back());
    spares_.pop_back();
    return found;
  }
  return {allocate_aligned(bytes), bytes};
}

void Communicator::give_back(CommunicatorScratch scratch) {
  const std::size_t most = kBlockBytesOfRank * static_cast<std::size_t>(size_);
  if (scratch.memory && scratch.bytes <= most && spares_.size() < kMostSpares) {
    spares_.push_back(std::move(scratch));
  }
}

void Communicator::finish_until(PendingOperation& last) {
  for (std::size_t at = 0; !last.done;) {
    const Operation operation = pending_[at];
    // Between two ranks there is an order of their own: nobody else waits for them here.
    if (operation.get() != &last && (operation->is_pair() || last.is_pair())) {
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
    transport_->renew(std::chrono::steady_clock::now() + timeout(options));
    sequence_ = 0;
    std::fill(sent_.begin(), sent_.end(), 0);
    std::fill(received_.begin(), received_.end(), 0);
  }
  told_.store(false);
  ++generation_;
}

std::shared_ptr<std::byte> Communicator::allocate(std::size_t bytes) {
  return transport_ != nullptr ? transport_->allocate(bytes) : allocate_aligned(bytes);
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
    transport_->commit(sequence_++, signature, std::chrono::steady_clock::now() + timeout(options));
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

void Communicator::all_reduce(Bytes numbers, DType dtype, ReduceOp op, CallOptions options) {
  count_of("[communicator.all_reduce] ", numbers.size(), dtype, op);
  const std::size_t item = c10::elementSize(dtype);
  const std::size_t block = kBlockBytesOfRank * static_cast<std::size_t>(size_) / item * item;
  if (numbers.size() <= block) return start_all_reduce(numbers, dtype, op, options).wait();
  std::deque<Pending> under_way;
  for (std::size_t at = 0; at < numbers.size(); at += block) {
    const Bytes part = numbers.subspan(at, std::min(block, numbers.size() - at));
    under_way.push_back(start_all_reduce_of(numbers.size(), part, dtype, op, options));
    if (under_way.size() < 3) continue;
    under_way.front().wait();
    under_way.pop_front();
  }
  for (Pending& pending : under_way) pending.wait();
}

Communicator::Pending Communicator::start_all_reduce(Bytes numbers, DType dtype, ReduceOp op,
                                                     CallOptions options) {
  return start_all_reduce_of(numbers.size(), numbers, dtype, op, options);
}

// `numbers` are a part of so many bytes, which is what the ranks compare.
Communicator::Pending Communicator::start_all_reduce_of(std::size_t bytes, Bytes numbers,
                                                        DType dtype, ReduceOp op,
                                                        const CallOptions& options) {
  const std::size_t count = count_of("[communicator.all_reduce] ", numbers.size(), dtype, op);
  if (size_ == 1) return {};
  Operation operation = prepare(
      {.collective = Collective::kAllReduce, .bytes = bytes, .dtype = dtype, .op = op}, options);
  const std::size_t item = c10::elementSize(dtype);
  const bool whole = numbers.size() <= kWholeBytes;
  const Bytes mine = whole ? numbers : segment(numbers, item, rank_, size_);
  operation->scratch = scratch(mine.size() * static_cast<std::size_t>(size_ - 1));
  std::byte* into = operation->scratch.memory.get();
  for (ExchangePart& part : operation->exchange.parts) {
    part.to_peer = whole ? numbers : segment(numbers, item, part.peer, size_);
    part.from_peer = {into, mine.size()};
    into += mine.size();
  }
  operation->arrived = [=, rank = rank_, size = size_](PendingOperation& self) {
    if (self.exchange.key.phase > 0) return false;
    const RankedSources sources(rank, size, mine.data(), self.scratch.memory.get(), mine.size());
    sources.reduce(dtype, op, mine.data(), whole ? count : mine.size() / item);
    if (whole) return false;
    for (ExchangePart& part : self.exchange.parts) {
      part.to_peer = mine;
      part.from_peer = segment(numbers, item, part.peer, size);
    }
    return true;
  };
  return begin(std::move(operation));
}

Communicator::Pending Communicator::start_reduce_scatter(std::span<const ConstBytes> pieces,
                                                         Bytes out, DType dtype, ReduceOp op,
                                                         CallOptions options) {
  constexpr const char* kName = "[communicator.reduce_scatter] ";
  COHORT_CHECK_ARG(pieces.size() == static_cast<std::size_t>(size_), kName, "expected ", size_,
                   " pieces, one for each rank, got ", pieces.size());
  const ConstBytes mine = pieces[static_cast<std::size_t>(rank_)];
  COHORT_CHECK_ARG(mine.size() == out.size(), kName, "expected ", mine.size(),
                   " bytes for the result, as this rank's piece has, got ", out.size());
  for (const ConstBytes& piece : pieces) count_of(kName, piece.size(), dtype, op);
  if (size_ == 1) {
    copy_apart(mine, out);
    return {};
  }
  Operation operation = prepare({.collective = Collective::kReduceScatter,
                                 .bytes = total_bytes(pieces),
                                 .dtype = dtype,
                                 .op = op},
                                options);
  operation->scratch = scratch(mine.size() * static_cast<std::size_t>(size_ - 1));
  std::byte* into = operation->scratch.memory.get();
  for (ExchangePart& part : operation->exchange.parts) {
    part.to_peer = pieces[static_cast<std::size_t>(part.peer)];
    part.from_peer = {into, mine.size()};
    into += mine.size();
  }
  operation->arrived = [=, rank = rank_, size = size_](PendingOperation& self) {
    const RankedSources sources(rank, size, mine.data(), self.scratch.memory.get(), mine.size());
    sources.reduce(dtype, op, out.data(), out.size() / c10::elementSize(dtype));
    return false;
  };
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
void Communicator::reduce_scatter(std::span<const ConstBytes> pieces, Bytes out, DType dtype,
                                  ReduceOp op, CallOptions options) {
  start_reduce_scatter(pieces, out, dtype, op, options).wait();
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

}  // namespace cohort::internal
