// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/replicated_state.h"

#include <algorithm>
#include <memory>
#include <new>
#include <span>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/coordinator/parameters/generation_fence.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/rpc/errors.h"
#include "cohort/rpc/wire.h"

namespace cohort::internal::coordinator {
namespace {

constexpr const char* kState = "[ps] ";
// Ids of one coordinator's variables, none of which the next one's has.
constexpr int kIdBits = 32;
constexpr std::size_t kStatusBytes = sizeof(uint64_t);
// What is smaller would keep more than itself where it has arrived.
constexpr std::size_t kCopiedCall = std::size_t{64} << 10;

std::string status_text(GroupStatus status) {
  rpc::MessageWriter out;
  out.number(static_cast<uint64_t>(status));
  return out.str();
}

std::string error_text(ErrorCode code, const std::string& text) {
  rpc::MessageWriter out;
  out.number(static_cast<uint64_t>(GroupStatus::kError));
  out.number(static_cast<uint64_t>(code));
  out.text(text);
  return out.str();
}

}  // namespace

/// What group_call() was told, without a copy.
struct ReplicatedParameters::Call {
  explicit Call(replication::Bytes&& call) = delete;
  explicit Call(const replication::Bytes& call) {
    std::string head;  // the generation, and the name behind it
    bool is_whole = false;
    for (replication::Bytes::Piece piece : call.pieces()) {
      while (!is_whole && !piece.empty()) {
        const auto next = static_cast<char>(piece.front());
        piece = piece.subspan(1);
        is_whole = head.size() >= sizeof generation && next == '\0';
        if (!is_whole) head.push_back(next);
      }
      message.append({.bytes = piece, .owner = {}});
    }
    rpc::MessageReader in(kState, head);
    generation = in.number();
    method = head.substr(sizeof generation);
  }
  uint64_t generation = 0;
  std::string method = {};
  rpc::Payload message = {};  // lies in the call
};

namespace {

// LibTorch's own allocator says it in words.
bool is_of_memory(const c10::Error& e) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&e) != nullptr ||
         std::string_view(e.what_without_backtrace()).find("CPUAllocator") !=
             std::string_view::npos;
}

// What has been asked for wrongly is so on every copy, and a result. Memory may be short on this
// one alone, whose state would be another one than the others' from here on.
template <class Work>
std::string answered(const Work& work) {
  try {
    return status_text(GroupStatus::kDone) + work();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const Unavailable&) {
    return status_text(GroupStatus::kAgain);
  } catch (const Error& e) {
    return error_text(e.code(), e.what());
  } catch (const c10::Error& e) {
    if (is_of_memory(e)) throw std::bad_alloc();
    return error_text(ErrorCode::kInternal, str_cat(kState, e.what_without_backtrace()));
  } catch (const std::exception& e) {
    return error_text(ErrorCode::kUnknown, str_cat(kState, e.what()));
  }
}

}  // namespace

rpc::Payload part_of(const rpc::Payload& payload, std::size_t first, std::size_t count) {
  rpc::Payload out;
  for (rpc::Payload::Piece piece : payload.pieces()) {
    const std::size_t skip = std::min(first, piece.bytes.size());
    first -= skip;
    piece.bytes = piece.bytes.subspan(skip, std::min(piece.bytes.size() - skip, count));
    count -= piece.bytes.size();
    if (!piece.bytes.empty()) out.append(std::move(piece));
  }
  return out;
}

rpc::Payload rest_of(const rpc::Payload& payload, std::size_t bytes) {
  return part_of(payload, payload.size() - bytes, bytes);
}

replication::Bytes group_call(uint64_t generation, const std::string& method,
                              const rpc::Payload& message) {
  rpc::MessageWriter head;
  head.number(generation);
  const std::string name = head.str() + method + '\0';
  const auto whole = std::make_shared<rpc::Payload>(name);
  bool is_owned = message.size() > kCopiedCall;
  std::vector<replication::Bytes::Piece> pieces = {whole->pieces()[0].bytes};
  for (const rpc::Payload::Piece& piece : message.pieces()) {
    is_owned = is_owned && piece.owner != nullptr;
    whole->append(piece);
    pieces.push_back(piece.bytes);
  }
  if (!is_owned) return whole->text();
  return {std::move(pieces), whole};
}

rpc::Payload group_answer(GroupStatus status, std::string_view bytes) {
  return rpc::Payload(status_text(status).append(bytes));
}

rpc::RpcResult read_group_answer(const rpc::Payload& answer, GroupStatus& status, uint64_t& hint) {
  PayloadReader in(kState, answer);
  std::string head(kStatusBytes, '\0');
  in.read(head.data(), head.size());
  status = static_cast<GroupStatus>(
      rpc::MessageReader(kState, head).number_up_to(static_cast<uint64_t>(GroupStatus::kError)));
  rpc::RpcResult out;
  if (status == GroupStatus::kDone) {
    std::size_t skipped = 0;
    for (rpc::Payload::Piece piece : answer.pieces()) {
      const std::size_t skip = std::min(kStatusBytes - skipped, piece.bytes.size());
      skipped += skip;
      piece.bytes = piece.bytes.subspan(skip);
      if (!piece.bytes.empty()) out.payload.append(std::move(piece));
    }
    return out;
  }
  std::string rest(in.left(), '\0');
  in.read(rest.data(), rest.size());
  rpc::MessageReader text(kState, rest);
  if (status == GroupStatus::kNotPrimary) hint = text.number();
  if (status == GroupStatus::kError) {
    const auto code =
        static_cast<ErrorCode>(text.number_up_to(static_cast<uint64_t>(rpc::kUnauthenticatedCode)));
    out.error = rpc::error_with(code, text.text(), "");
  }
  return out;
}

ReplicatedParameters::ReplicatedParameters() { service_.begin(0); }

bool ReplicatedParameters::begin(uint64_t session, uint64_t origin) {
  if (origin != 0 && origin_ == origin) return true;
  if (origin_ == session) return false;
  origin_ = session;
  service_.begin(++origins_ << kIdBits);
  return false;
}

void ReplicatedParameters::check_newest(uint64_t generation) const {
  if (generation < generation_) throw superseded_error(generation, generation_);
}

std::string ReplicatedParameters::apply(const replication::Bytes& update) {
  const Call call(update);
  return answered([&] {
    base::failpoint("ps.apply");
    check_newest(call.generation);
    if (call.method != "ps.begin") return service_.ask(call.method, call.message).text();
    generation_ = call.generation;
    const std::string text = call.message.text();
    rpc::MessageReader in(kState, text);
    const uint64_t session = in.number();
    const uint64_t origin = in.number();
    in.end();
    rpc::MessageWriter out;
    out.number(begin(session, origin) ? 1 : 0);
    return out.str();
  });
}

std::string ReplicatedParameters::read(const std::string& query) const {
  const replication::Bytes bytes(query);
  const Call call(bytes);
  return answered([&] {
    check_newest(call.generation);
    return service_.ask(call.method, call.message).text();
  });
}

namespace {

class PayloadSnapshot final : public replication::StateSnapshot {
 public:
  explicit PayloadSnapshot(rpc::Payload all) : all_(std::move(all)) {
    uint64_t end = 0;
    for (const rpc::Payload::Piece& piece : all_.pieces())
      ends_.push_back(end += piece.bytes.size());
  }
  uint64_t size() const override { return all_.size(); }
  std::string bytes(uint64_t first, uint64_t count) const override {
    std::string out;
    out.reserve(count);
    const auto begin = std::upper_bound(ends_.begin(), ends_.end(), first);
    for (auto at = static_cast<std::size_t>(begin - ends_.begin()); out.size() < count; ++at) {
      const std::span<const std::byte> piece = all_.pieces()[at].bytes;
      const uint64_t skip = first + out.size() - (ends_[at] - piece.size());
      const auto rest = piece.subspan(skip, std::min(piece.size() - skip, count - out.size()));
      out.append(reinterpret_cast<const char*>(rest.data()), rest.size());
    }
    return out;
  }

 private:
  const rpc::Payload all_;
  std::vector<uint64_t> ends_;  // of the pieces, as places in the whole
};

}  // namespace

std::shared_ptr<const replication::StateSnapshot> ReplicatedParameters::snapshot() {
  rpc::MessageWriter sessions;
  sessions.number(generation_);
  sessions.number(origin_);
  sessions.number(origins_);
  rpc::Payload out(sessions.str());
  const rpc::Payload parameters = service_.snapshot();
  for (const rpc::Payload::Piece& piece : parameters.pieces()) out.append(piece);
  return std::make_shared<PayloadSnapshot>(std::move(out));
}

void ReplicatedParameters::restore(std::vector<replication::Bytes> pieces) {
  rpc::Payload all;
  for (const replication::Bytes& each : pieces) {
    for (const replication::Bytes::Piece piece : each.pieces()) {
      all.append({.bytes = piece, .owner = each.owner()});
    }
  }
  constexpr std::size_t kSessions = 3 * sizeof(uint64_t);
  std::string sessions(kSessions, '\0');
  PayloadReader(kState, all).read(sessions.data(), sessions.size());
  rpc::MessageReader in(kState, sessions);
  generation_ = in.number();
  origin_ = in.number();
  origins_ = in.number();
  service_.restore(rest_of(all, all.size() - kSessions));
}

}  // namespace cohort::internal::coordinator
