// SPDX-License-Identifier: Apache-2.0
//
// A server of named methods over gRPC. A handler gets bytes and answers with bytes, at once or
// later; what the bytes mean is its own business.
//
//   RpcServer server({}, {{"echo", [](RpcRequest request, RpcReply reply) {
//     reply.send(std::move(request.payload));
//   }}});
//   RpcClient client({.address = server.address()});
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cohort/rpc/claims.h"
#include "cohort/rpc/payload.h"

namespace cohort::internal::rpc {

/// The most bytes of one message, in either direction; what is larger travels in several.
constexpr int kMostMessageBytes = 64 << 20;

struct RpcRequest {
  RpcClaims caller = {};  ///< Proved, where the server has a token.
  Payload payload = {};
  /// It came in a lane, whose thread is the caller's alone: the handler may do its work at once.
  bool may_block = false;
};

/// Answers one call; the first answer counts. Dropping the last copy without one fails the call.
/// Threads: thread-safe. It may outlive the server.
class RpcReply {
 public:
  struct Call;
  explicit RpcReply(std::shared_ptr<Call> call) : call_(std::move(call)) {}
  void send(Payload payload) const;
  /// An Error keeps its class on the way, others arrive as kUnknown. Texts are cut at 4 KiB.
  void fail(const std::exception& error) const;
  /// Memory from which an answer is sent without a copy: its bytes are the last piece of what is
  /// sent, behind few others. Empty: there is none of that size.
  struct Room {
    std::span<std::byte> bytes = {};
    std::shared_ptr<const void> owner = {};
    /// How many of them are final, ahead of the answer: the client takes them meanwhile.
    std::atomic<uint64_t>* filled = nullptr;
  };
  Room room(std::size_t bytes) const;

 private:
  std::shared_ptr<Call> call_;
};

/// Must not block, but for `may_block`: it runs on one of gRPC's threads. What it throws fails the
/// call.
using RpcHandler = std::function<void(RpcRequest request, RpcReply reply)>;

struct RpcServerOptions {
  std::string address = "127.0.0.1:0";  ///< Port 0: one that is free.
  RpcSecurity security = {};
  int most_message_bytes = kMostMessageBytes;
  /// Whoever is connected for so long without a call is cut off; a client connects anew for its
  /// next one.
  int idle_milliseconds = 30'000;
  /// Methods that processes of this machine and user may call through shared memory (lane.h),
  /// unless COHORT_LANES is 0. With certificates there has to be a token, too, which proves callers
  /// there.
  std::vector<std::string> lanes = {};
};

/// Threads: thread-safe.
class RpcServer {
 public:
  /// Errors: InvalidArgument for an address beyond loopback without TLS or allow_insecure, and for
  ///         certificates that cannot be read; Error kAlreadyExists that names the address where
  ///         it cannot listen.
  RpcServer(RpcServerOptions options, std::map<std::string, RpcHandler> methods);
  /// Calls that are under way fail by Unavailable. Blocks: until no handler runs any more.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  /// Lanes that are open.
  std::size_t lanes() const;
  int port() const;
  /// "host:port", with the host that it was told.
  std::string address() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::internal::rpc
