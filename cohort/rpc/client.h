// SPDX-License-Identifier: Apache-2.0
//
// Calls to one server of named methods.
//
//   RpcClient store({.address = "127.0.0.1:4711", .server_name = "the job's store"});
//   Payload answer = store.call("ask", Payload("..."), {.timeout = std::chrono::seconds(2)});
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "cohort/rpc/claims.h"
#include "cohort/rpc/lane.h"
#include "cohort/rpc/payload.h"

namespace cohort::internal::rpc {

struct RpcClientOptions {
  std::string address = {};
  std::string server_name = "the server";  ///< Who it is, for error texts.
  RpcSecurity security = {};
  RpcClaims claims = {};  ///< `job` is the security's.
  bool lanes = true;      ///< Whether start_in_lane() may do it.
  /// A server that acknowledges nothing for so long, nor takes what is sent, is cut off.
  std::chrono::milliseconds most_silence = std::chrono::seconds(20);
};

struct RpcCallOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(10);
  /// Whether a server that does not answer is waited for; else the call fails at once.
  bool wait_for_server = false;
  /// In a lane: the most that is expected of the answer.
  std::size_t answer_bytes = 0;
  /// In a lane: an answer whose last piece lies where the server was given room (RpcReply::room),
  /// and is of this size, is copied to here, as it comes, and is that piece. So this may be
  /// written before the call is over, whatever becomes of it, by who waits for it.
  std::span<std::byte> answer_to = {};
};

/// Threads: thread-safe.
class RpcClient {
 public:
  /// Reaches nobody yet. Errors: InvalidArgument as check_reachable_safely(), and for certificates
  ///                             that cannot be read.
  explicit RpcClient(RpcClientOptions options);
  /// Cancels calls that are under way. Blocks: until they have ended; so not inside of a `done`.
  /// Where a server stands still and does not read what was sent, that takes `most_silence`.
  virtual ~RpcClient();
  RpcClient(const RpcClient&) = delete;
  RpcClient& operator=(const RpcClient&) = delete;

  /// Of the calls from here on.
  void set_claims(RpcClaims claims);

  /// Blocks: for the answer, at most `timeout`.
  /// Errors: what the handler threw, of its class; Unavailable, DeadlineExceeded and
  ///         Unauthenticated that name server, address, method, seconds and what to do; Cancelled
  ///         after cancel().
  Payload call(const std::string& method, Payload request, RpcCallOptions options = {});
  /// `done` is called once, on a thread of gRPC's, and must not block.
  virtual void start(const std::string& method, Payload request, RpcCallOptions options,
                     std::function<void(RpcResult)> done);
  /// Through memory that is shared with the server (lane.h). Without a call: start() it; also the
  /// first ones, until the server has said what it offers. Who overrides start() has to say here
  /// what becomes of it. Blocks: while it opens a lane, for the timeout or a second; where there is
  /// none, again after half a minute.
  virtual LaneStart start_in_lane(const std::string& method, const Payload& request,
                                  const RpcCallOptions& options);
  bool has_lane() const;
  /// Ends all calls that are under way, and those that come. Blocks: never.
  void cancel();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::internal::rpc
