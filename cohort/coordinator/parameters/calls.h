// SPDX-License-Identifier: Apache-2.0
//
// Several calls to servers at once. Where a connection breaks they are sent again, for half a
// second; what changes something has a number, so that it is done once all the same. Calls go
// through shared memory where the server offers it (rpc/lane.h), else over gRPC.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "cohort/coordinator/parameters/call_numbers.h"
#include "cohort/rpc/client.h"

namespace cohort::internal::coordinator {

/// Threads: one uses it.
class Calls {
 public:
  using Take = std::function<void(const rpc::Payload&)>;

  explicit Calls(std::chrono::milliseconds timeout);
  /// Blocks: until all calls are over, which what they send and bring must outlive.
  ~Calls();
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  /// A call that may be done twice. `take` gets the answer, on the thread that starts or waits,
  /// while other calls go on. `answer_bytes`: the most that it brings. `answer_to`: as
  /// RpcCallOptions has it; it outlives the call.
  void start(rpc::RpcClient& server, const char* method, rpc::Payload request, Take take = {},
             bool wait_for_server = false, std::size_t answer_bytes = 0,
             std::span<std::byte> answer_to = {});
  /// A call that is done once, for servers that know it as such.
  /// Blocks: for the first one of a server, and while 4,096 have no answer.
  /// Errors: as RpcClient, if the server does not tell who this client is.
  void start_once(CallNumbers& server, const char* method, const rpc::Payload& request,
                  Take take = {}, bool wait_for_server = false);
  /// For all. Errors: the one of the call that was started first; the others have ended, too.
  void wait();

 private:
  using Clock = std::chrono::steady_clock;
  struct Shared;
  struct Call {
    rpc::RpcClient* server = nullptr;
    const char* method = nullptr;
    rpc::Payload request = {};
    Take take = {};
    bool wait_for_server = false;
    std::size_t answer_bytes = 0;
    std::span<std::byte> answer_to = {};
    std::unique_ptr<rpc::LaneCall> in_lane = {};
    CallNumbers* numbers = nullptr;  // of one that is done once
    CallNumber number = {};
    Clock::time_point begun = Clock::now();
    int tries = 0;  // that are over
  };
  void add(Call call);
  void send(std::size_t index);
  void send_over_grpc(std::size_t index);
  bool send_in_lane(std::size_t index);
  bool finish_in_lanes();
  void wait_in_lane(std::size_t index, Clock::time_point until);
  void send_again();
  bool any_over_grpc() const { return calls_.size() - over_ > in_lanes_.size() + again_.size(); }
  void move_on();
  std::chrono::milliseconds time_left(const Call& call) const;
  void finish(std::size_t index, const rpc::RpcResult& result);
  bool again_later(std::size_t index, const std::exception_ptr& error);
  void fail(std::size_t index, std::exception_ptr error);

  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<Shared> shared_;
  std::deque<Call> calls_;
  std::multimap<Clock::time_point, std::size_t> again_;  // which are sent again, and when
  std::deque<std::size_t> in_lanes_;                     // the first one was sent first
  std::size_t over_ = 0;                                 // how many
  std::size_t failed_ = 0;                               // the first call of which error_ is
  std::exception_ptr error_;
};

}  // namespace cohort::internal::coordinator
