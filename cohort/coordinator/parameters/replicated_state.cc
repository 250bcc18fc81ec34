// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/replicated_state.h"

#include <algorithm>
#include <memory>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/rpc/errors.h"
#include "cohort/rpc/wire.h"

namespace cohort::internal {
namespace {

constexpr const char* kState = "[ps] ";
// Ids of one coordinator's variables, none of which the next one's has.
constexpr int kIdBits = 32;
constexpr std::size_t kStatusBytes = sizeof(uint64_t);

std::string status_text(GroupStatus status) {
  MessageWriter out;
  out.number(static_cast<uint64_t>(status));
  return out.str();
}

std::string error_text(ErrorCode code, const std::string& text) {
  MessageWriter out;
  out.number(static_cast<uint64_t>(GroupStatus::kError));
  out.number(static_cast<uint64_t>(code));
  out.text(text);
  return out.str();
}

/// The name, and the message without a copy: `call` stays there.
std::pair<std::string, Payload> parts_of(const std::string& call) {
  const auto end = std::min(call.find('\0'), call.size());
  Payload message;
  if (end < call.size()) {
    message.append({.bytes = std::as_bytes(std::span(call).subspan(end + 1)), .owner = {}});
  }
  return {call.substr(0, end), std::move(message)};
}

template <class Work>
std::string answered(const Work& work) {
  try {
    return status_text(GroupStatus::kDone) + work();
  } catch (const Unavailable&) {
    return status_text(GroupStatus::kAgain);
  } catch (const Error& e) {
    return error_text(e.code(), e.what());
  } catch (const c10::Error& e) {
    return error_text(ErrorCode::kInternal, str_cat(kState, e.what_without_backtrace()));
  } catch (const std::exception& e) {
    return error_text(ErrorCode::kUnknown, str_cat(kState, e.what()));
  }
}

}  // namespace

std::string group_call(const std::string& method, const Payload& message) {
  std::string out;
  out.reserve(method.size() + 1 + message.size());
  out = method;
  out.push_back('\0');
  for (const Payload::Piece& piece : message.pieces()) {
    out.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
  }
  return out;
}

Payload group_answer(GroupStatus status, std::string_view bytes) {
  return Payload(status_text(status).append(bytes));
}

RpcResult read_group_answer(const Payload& answer, GroupStatus& status, uint64_t& hint) {
  PayloadReader in(kState, answer);
  std::string head(kStatusBytes, '\0');
  in.read(head.data(), head.size());
  status = static_cast<GroupStatus>(
      MessageReader(kState, head).number_up_to(static_cast<uint64_t>(GroupStatus::kError)));
  RpcResult out;
  if (status == GroupStatus::kDone) {
    std::size_t skipped = 0;
    for (Payload::Piece piece : answer.pieces()) {
      const std::size_t skip = std::min(kStatusBytes - skipped, piece.bytes.size());
      skipped += skip;
      piece.bytes = piece.bytes.subspan(skip);
      if (!piece.bytes.empty()) out.payload.append(std::move(piece));
    }
    return out;
  }
  std::string rest(in.left(), '\0');
  in.read(rest.data(), rest.size());
  MessageReader text(kState, rest);
  if (status == GroupStatus::kNotPrimary) hint = text.number();
  if (status == GroupStatus::kError) {
    const auto code =
        static_cast<ErrorCode>(text.number_up_to(static_cast<uint64_t>(kUnauthenticatedCode)));
    out.error = error_with(code, text.text(), "");
  }
  return out;
}

ReplicatedParameters::ReplicatedParameters() { service_.begin(0); }

void ReplicatedParameters::begin(uint64_t session) {
  if (session == session_) return;
  session_ = session;
  service_.begin(++sessions_ << kIdBits);
}

std::string ReplicatedParameters::apply(const std::string& update) {
  const auto [method, message] = parts_of(update);
  const std::string& name = method;
  const Payload& payload = message;
  return answered([&] {
    if (name != "ps.begin") return service_.ask(name, payload).text();
    const std::string text = payload.text();
    MessageReader in(kState, text);
    begin(in.number());
    in.end();
    return std::string();
  });
}

std::string ReplicatedParameters::read(const std::string& query) const {
  const auto parts = parts_of(query);
  return answered([&] { return service_.ask(parts.first, parts.second).text(); });
}

std::string ReplicatedParameters::snapshot() const {
  MessageWriter out;
  out.number(session_);
  out.number(sessions_);
  out.text(service_.snapshot());
  return out.str();
}

void ReplicatedParameters::restore(const std::string& snapshot) {
  MessageReader in(kState, snapshot);
  session_ = in.number();
  sessions_ = in.number();
  service_.restore(in.text());
  in.end();
}

}  // namespace cohort::internal
