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

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "cohort/rpc/claims.h"
#include "cohort/rpc/payload.h"

namespace cohort::internal::rpc {

/// The most bytes of one message, in either direction; what is larger travels in several.
constexpr int kMostMessageBytes = 64 << 20;

struct RpcRequest {
  RpcClaims caller = {};  ///< Proved, where the server has a token.
  Payload payload = {};
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

 private:
  std::shared_ptr<Call> call_;
};

/// Must not block: it runs on one of gRPC's threads. What it throws fails the call.
using RpcHandler = std::function<void(RpcRequest request, RpcReply reply)>;

struct RpcServerOptions {
  std::string address = "127.0.0.1:0";  ///< Port 0: one that is free.
  RpcSecurity security = {};
  int most_message_bytes = kMostMessageBytes;
  /// Whoever is connected for so long without a call is cut off; a client connects anew for its
  /// next one.
  int idle_milliseconds = 30'000;
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

  int port() const;
  /// "host:port", with the host that it was told.
  std::string address() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::internal::rpc
