// SPDX-License-Identifier: Apache-2.0
//
// Calls in lanes, for tests.
#pragma once

#include <chrono>
#include <exception>
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
