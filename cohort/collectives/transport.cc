// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transport.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/rpc/errors.h"

namespace cohort::internal::collectives {

const char* collective_name(Collective collective) {
  switch (collective) {
    case Collective::kBarrier:
      return "barrier";
    case Collective::kCommit:
      return "commit";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kSend:
      return "send";
  }
  return "";
}

std::string signature_text(const CallSignature& s) {
  std::string out = str_cat(collective_name(s.collective), "(");
  if (s.dtype != DType::Undefined) {
    out += str_cat(reduce_op_name(s.op), " of ", dtype_name(s.dtype), ", ");
  }
  if (s.collective == Collective::kBroadcast) out += str_cat("root ", s.root, ", ");
  // Of an all_to_all each message has a length of its own.
  out += s.collective == Collective::kAllToAll ? "" : str_cat(s.bytes, " bytes");
  if (s.tag != 0) out += str_cat(", tag ", s.tag);
  return out + ")";
}

void check_same_signature(const CallSignature& mine, int rank, const CallSignature& theirs,
                          int peer) {
  if (mine == theirs) return;
  const CallSignature& low = rank < peer ? mine : theirs;
  const CallSignature& high = rank < peer ? theirs : mine;
  throw FailedPrecondition(
      str_cat("[communicator] expected every rank to call the same operations in the same order, "
              "got ",
              signature_text(low), " on rank ", std::min(rank, peer), " and ", signature_text(high),
              " on rank ", std::max(rank, peer)));
}

void check_same_length(const CallSignature& signature, int rank, std::size_t expected, int peer,
                       std::size_t got) {
  COHORT_CHECK_STATE(expected == got, "[communicator] expected ranks to agree on lengths, got ",
                     signature_text(signature), " with ", expected, " bytes for rank ", peer,
                     "'s part on rank ", rank, " and ", got, " bytes on rank ", peer);
}

namespace {
// "strategy.reduce" of "[strategy.reduce] ", as errors begin.
std::string plain_name(std::string operation) {
  std::erase_if(operation, [](char c) { return c == '[' || c == ']'; });
  while (!operation.empty() && operation.back() == ' ') operation.pop_back();
  return operation;
}
}  // namespace

Failure failure_of(const std::exception_ptr& error, int rank, int size, const char* operation) {
  Failure failure{.rank = rank};
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    failure.code = e.code();
    failure.text = e.what();
  } catch (const std::exception& e) {
    failure.text = e.what();
  } catch (...) {
    failure.text = "an exception of an unknown class";
  }
  failure.text += str_cat(" (rank ", rank, " of ", size, ", in ", plain_name(operation), ")");
  return failure;
}

void throw_failure(const Failure& failure) {
  if (failure.code == rpc::kUnauthenticatedCode) throw rpc::Unauthenticated(failure.text);
  switch (failure.code) {
    case ErrorCode::kInvalidArgument:
      throw InvalidArgument(failure.text);
    case ErrorCode::kFailedPrecondition:
      throw FailedPrecondition(failure.text);
    case ErrorCode::kUnavailable:
      throw Unavailable(failure.text, str_cat("rank ", failure.rank));
    case ErrorCode::kDeadlineExceeded:
      throw DeadlineExceeded(failure.text);
    case ErrorCode::kCancelled:
      throw Cancelled(failure.text);
    case ErrorCode::kDataLoss:
      throw DataLoss(failure.text);
    case ErrorCode::kUnimplemented:
      throw Unimplemented(failure.text);
    case ErrorCode::kInternal:
      throw Internal(failure.text);
    default:
      throw Error(failure.code, failure.text);
  }
}

void Transport::lose(std::span<const int> /*ranks*/, const Failure& failure) noexcept {
  abort(failure);
}

void Transport::look(Exchange& exchange, Deadline deadline) {
  finish(exchange, deadline);
  for (ExchangePart& part : exchange.parts) part.seen = part.from_peer;
}

std::shared_ptr<std::byte> Transport::allocate(std::size_t bytes) {
  std::shared_ptr<std::byte> memory = allocate_aligned(bytes);
  std::memset(memory.get(), 0, bytes);
  return memory;
}

std::unique_ptr<runtime::Region> Transport::reserve_memory(std::size_t) { return nullptr; }

std::shared_ptr<std::byte> allocate_aligned(std::size_t bytes) {
  constexpr std::align_val_t kAlignment{64};
  void* memory = ::operator new(std::max<std::size_t>(bytes, 1), kAlignment, std::nothrow);
  if (memory == nullptr) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[communicator.allocate] expected ", bytes, " bytes of memory, got none"));
  }
  return {static_cast<std::byte*>(memory), [](std::byte* p) { ::operator delete(p, kAlignment); }};
}

}  // namespace cohort::internal::collectives
