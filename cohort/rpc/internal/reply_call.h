// SPDX-License-Identifier: Apache-2.0
//
// Who carries an answer: gRPC, or the memory that a client of this machine shares with the server.
#pragma once

#include <string>

#include "cohort/rpc/server.h"

namespace cohort::internal::rpc {

/// The first of send() and fail() counts; without one its end is a failure. Threads: thread-safe.
struct RpcReply::Call {
  Call() = default;
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  virtual void send(const Payload& payload) = 0;
  virtual void fail(ErrorCode code, const std::string& text) = 0;
  virtual Room room(std::size_t /*bytes*/) { return {}; }
};

inline constexpr const char* kDroppedCall = "a handler has dropped a call without an answer";
inline constexpr const char* kServerEnds = "the server ends: its process is through with the job";
// Texts travel in a header, which has little room.
inline constexpr std::size_t kLongestErrorText = 4096;

}  // namespace cohort::internal::rpc
