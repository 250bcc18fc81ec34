// SPDX-License-Identifier: Apache-2.0
//
// Calls in lanes, for tests.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "cohort/rpc/client.h"
#include "cohort/rpc/lane.h"
#include "cohort/rpc/server.h"

namespace cohort::internal::rpc {

using TestClock = std::chrono::steady_clock;

inline const RpcHandler kEchoAll = [](RpcRequest request, RpcReply reply) {
  reply.send(std::move(request.payload));
};

/// A server's calls by the way that they came.
struct CallCounts {
  struct Ways {
    std::atomic<int> in_lanes = 0;
    std::atomic<int> over_grpc = 0;
  };
  std::map<std::string, Ways> methods = {};
  /// Of all calls since this was asked last.
  int over_grpc(const std::string& method) { return methods.at(method).over_grpc.exchange(0); }
  int in_lanes(const std::string& method) { return methods.at(method).in_lanes.exchange(0); }
};

/// The same methods, which count their calls.
inline std::map<std::string, RpcHandler> counted(std::map<std::string, RpcHandler> methods,
                                                 const std::shared_ptr<CallCounts>& counts) {
  for (auto& [name, handler] : methods) counts->methods[name];
  for (auto& [name, handler] : methods) {
    handler = [counts, name = name, inner = handler](RpcRequest request, RpcReply reply) {
      CallCounts::Ways& ways = counts->methods.at(name);
      ++(request.may_block ? ways.in_lanes : ways.over_grpc);
      inner(std::move(request), std::move(reply));
    };
  }
  return methods;
}

inline std::string text_of(std::size_t bytes, char with) { return std::string(bytes, with); }

// The first calls of a client find the lane.
inline bool opens_lane(RpcClient& client, std::chrono::seconds limit = std::chrono::seconds(10)) {
  const auto until = TestClock::now() + limit;
  while (TestClock::now() < until) {
    if (client.start_in_lane("echo", Payload("x"), {}).call) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

inline std::unique_ptr<LaneCall> begin(RpcClient& client, const char* method,
                                       const Payload& request, RpcCallOptions options = {}) {
  return client.start_in_lane(method, request, options).call;
}

inline RpcResult result_of(LaneCall& call) {
  call.wait(TestClock::time_point::max());
  return call.take().value();
}

inline std::string answer_of(RpcClient& client, const char* method, const std::string& request) {
  const auto call = begin(client, method, Payload(request), {.answer_bytes = request.size() + 100});
  if (!call) return "no lane";
  const RpcResult result = result_of(*call);
  if (result.error) std::rethrow_exception(result.error);
  return result.payload.text();
}

}  // namespace cohort::internal::rpc
