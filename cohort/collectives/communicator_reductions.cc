// SPDX-License-Identifier: Apache-2.0
//
// What a communicator adds up.
#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/pending_operation.h"
#include "cohort/reductions/local_reduce.h"

namespace cohort::internal::collectives {
namespace {

// A large all_reduce goes in blocks: one is added while the next one travels, and what comes is
// still in the cache when it is added.
constexpr std::size_t kBlockBytesOfRank = std::size_t{512} << 10;
constexpr std::size_t kMostSpares = 4;

// Up to here numbers are sent whole and added everywhere: one round trip instead of two.
constexpr std::size_t kWholeBytes = std::size_t{16} << 10;

std::size_t count_of(const char* operation, std::size_t bytes, DType dtype, ReduceOp op) {
  reductions::check_reducible(operation, op, dtype);
  const std::size_t item = c10::elementSize(dtype);
  COHORT_CHECK_ARG(bytes % item == 0, operation, "expected whole numbers of ", dtype_name(dtype),
                   " (", item, " bytes each), got ", bytes, " bytes");
  return bytes / item;
}

// What all ranks have brought of the same numbers, added in rank order. `parts` are those of all
// others, in rank order.
void add_in_rank_order(const Exchange& exchange, int rank, const std::byte* own, DType dtype,
                       ReduceOp op, std::byte* out, std::size_t count) {
  c10::SmallVector<const void*, 8> sources;
  for (const ExchangePart& part : exchange.parts) {
    if (static_cast<int>(sources.size()) == rank) sources.push_back(own);
    sources.push_back(part.seen.data());
  }
  if (static_cast<int>(sources.size()) == rank) sources.push_back(own);
  void* const outs[] = {out};
  reductions::reduce_range({.op = op,
                            .dtype = dtype,
                            .sources = {sources.data(), sources.size()},
                            .outs = outs,
                            .begin = 0,
                            .end = static_cast<int64_t>(count),
                            .divisor = static_cast<double>(sources.size())});
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

void Communicator::all_reduce(Bytes numbers, DType dtype, ReduceOp op, CallOptions options) {
  count_of("[communicator.all_reduce] ", numbers.size(), dtype, op);
  const std::size_t item = c10::elementSize(dtype);
  if (size_ == 1) return;
  if (numbers.size() <= kWholeBytes && pending_.empty()) {
    return reduce_at_once(numbers, dtype, op, options);
  }
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

// Few numbers, and nothing else under way: all send all of them, and nothing is allocated.
void Communicator::reduce_at_once(Bytes numbers, DType dtype, ReduceOp op,
                                  const CallOptions& options) {
  Exchange exchange = exchange_with_all({.collective = Collective::kAllReduce,
                                         .bytes = numbers.size(),
                                         .dtype = dtype,
                                         .op = op,
                                         .tag = options.tag});
  CommunicatorScratch memory = receive_to_look(exchange, numbers.size());
  for (ExchangePart& part : exchange.parts) part.to_peer = numbers;
  ++sequence_;
  try {
    const Deadline deadline = transport_->start_and_look(exchange, timeout(options));
    add_in_rank_order(exchange, rank_, numbers.data(), dtype, op, numbers.data(),
                      numbers.size() / c10::elementSize(dtype));
    transport_->let_go(exchange, deadline);
  } catch (...) {
    transport_->withdraw(exchange);
    fail(std::current_exception(), collective_name(Collective::kAllReduce));
  }
  give_back(std::move(memory));
}

// Makes an exchange one that is looked at: so many bytes of every other rank, with memory for them
// where they have to be moved.
CommunicatorScratch Communicator::receive_to_look(Exchange& exchange, std::size_t bytes) {
  exchange.delivery = Exchange::Delivery::kLook;
  CommunicatorScratch memory;
  if (!transport_->shares_memory()) memory = scratch(bytes * exchange.parts.size());
  std::byte* into = memory.memory.get();
  for (ExchangePart& part : exchange.parts) {
    part.from_peer = {into, bytes};
    if (into != nullptr) into += bytes;
  }
  return memory;
}

Communicator::Pending Communicator::start_all_reduce(Bytes numbers, DType dtype, ReduceOp op,
                                                     CallOptions options) {
  return start_all_reduce_of(numbers.size(), numbers, dtype, op, options);
}

// `numbers` are a part of so many bytes, which is what the ranks compare.
Communicator::Pending Communicator::start_all_reduce_of(std::size_t bytes, Bytes numbers,
                                                        DType dtype, ReduceOp op,
                                                        const CallOptions& options) {
  count_of("[communicator.all_reduce] ", numbers.size(), dtype, op);
  if (size_ == 1) return {};
  Operation operation = prepare(
      {.collective = Collective::kAllReduce, .bytes = bytes, .dtype = dtype, .op = op}, options);
  const std::size_t item = c10::elementSize(dtype);
  const bool whole = numbers.size() <= kWholeBytes;
  const Bytes mine = whole ? numbers : segment(numbers, item, rank_, size_);
  operation->scratch = receive_to_look(operation->exchange, mine.size());
  for (ExchangePart& part : operation->exchange.parts) {
    part.to_peer = whole ? numbers : segment(numbers, item, part.peer, size_);
  }
  operation->arrived = [=, rank = rank_, size = size_](PendingOperation& self) {
    if (self.exchange.key.phase > 0) return false;
    add_in_rank_order(self.exchange, rank, mine.data(), dtype, op, mine.data(), mine.size() / item);
    if (whole) return false;
    self.exchange.delivery = Exchange::Delivery::kMove;
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
  operation->scratch = receive_to_look(operation->exchange, mine.size());
  for (ExchangePart& part : operation->exchange.parts) {
    part.to_peer = pieces[static_cast<std::size_t>(part.peer)];
  }
  operation->arrived = [=, rank = rank_](PendingOperation& self) {
    add_in_rank_order(self.exchange, rank, mine.data(), dtype, op, out.data(),
                      out.size() / c10::elementSize(dtype));
    return false;
  };
  return begin(std::move(operation));
}

void Communicator::reduce_scatter(std::span<const ConstBytes> pieces, Bytes out, DType dtype,
                                  ReduceOp op, CallOptions options) {
  start_reduce_scatter(pieces, out, dtype, op, options).wait();
}

}  // namespace cohort::internal::collectives
