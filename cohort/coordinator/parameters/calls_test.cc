// SPDX-License-Identifier: Apache-2.0
//
// Calls that are sent again and done once: the server's memory by itself, then over links that lose
// answers.
#include "cohort/coordinator/parameters/calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "cohort/coordinator/parameters/call_memory.h"
#include "cohort/coordinator/parameters/lossy_link.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::coordinator {
namespace {

// Puts the text of what it is given, or "error", at the end of a list.
CallMemory::Answer to(std::vector<std::string>& answers) {
  return [&answers](const rpc::RpcResult& result) {
    answers.push_back(result.error ? "error" : result.payload.text());
  };
}

rpc::RpcResult result_of(const char* text) { return {.error = {}, .payload = rpc::Payload(text)}; }

TEST(CallMemory, ACallIsDoneOnceHoweverOftenItComes) {
  CallMemory memory(100);
  const uint64_t client = memory.open();
  std::vector<std::string> answers;
  const CallNumber first{client, 1, 1};
  EXPECT_TRUE(memory.begin(first, to(answers)));
  EXPECT_FALSE(memory.begin(first, to(answers))) << "it runs";
  EXPECT_TRUE(answers.empty());
  memory.end(first, result_of("7"));
  EXPECT_FALSE(memory.begin(first, to(answers)));
  EXPECT_EQ(answers, (std::vector<std::string>{"7", "7", "7"}));
  const CallNumber second{client, 2, 1};
  EXPECT_TRUE(memory.begin(second, to(answers)));
  memory.end(second, {.error = std::make_exception_ptr(InvalidArgument("x")), .payload = {}});
  EXPECT_FALSE(memory.begin(second, to(answers))) << "an error is an answer, too";
  EXPECT_EQ(answers.back(), "error");
  EXPECT_TRUE(memory.begin({memory.open(), 1, 1}, to(answers))) << "another client's first call";
}

TEST(CallMemory, WhatTheClientHasHeardIsForgotten) {
  CallMemory memory(0);
  const uint64_t client = memory.open();
  std::vector<std::string> answers;
  for (const uint64_t sequence : {1, 2, 3}) {
    EXPECT_TRUE(memory.begin({client, sequence, 1}, to(answers)));
    memory.end({client, sequence, 1}, result_of("x"));
  }
  EXPECT_TRUE(memory.begin({client, 4, 3}, to(answers)));
  EXPECT_FALSE(memory.begin({client, 3, 3}, to(answers)));
  // One that was on its way for long: nobody waits for it, and it must not be done again.
  EXPECT_THROW(memory.begin({client, 2, 1}, to(answers)), FailedPrecondition);
  EXPECT_THROW(memory.begin({client, 3 + kCallWindow, 3}, to(answers)), FailedPrecondition);
  EXPECT_TRUE(memory.begin({client, 2 + kCallWindow, 3}, to(answers)));
}

TEST(CallMemory, ClientsThatAreQuietMakeRoomForOthers) {
  CallMemory memory(0, /*most_clients=*/2);
  std::vector<std::string> answers;
  const uint64_t quiet = memory.open();
  const uint64_t busy = memory.open();
  EXPECT_TRUE(memory.begin({quiet, 1, 1}, to(answers)));
  EXPECT_TRUE(memory.begin({busy, 1, 1}, to(answers)));
  EXPECT_THROW(memory.open(), FailedPrecondition) << "calls of both run";
  memory.end({quiet, 1, 1}, result_of("x"));
  const uint64_t third = memory.open();
  EXPECT_EQ(memory.clients(), 2U);
  EXPECT_THROW(memory.begin({quiet, 2, 2}, to(answers)), FailedPrecondition);
  EXPECT_TRUE(memory.begin({busy, 2, 1}, to(answers)));
  memory.close(third);
  EXPECT_EQ(memory.clients(), 1U);
}

Tensor counts(ParameterServers& servers, const char* name) {
  return servers.pull(servers.bind(name));
}

// Every change goes over links that lose each fifth answer. Integers show one that is done twice.
TEST(Calls, LostAnswersChangeNoNumber) {
  const TestServers test(2);
  constexpr int kWorkers = 3;
  constexpr int kSteps = 12;
  const UpdateStep sgd{.rule = update_rules::SgdStep{1}, .how = {}, .slots = {}};
  const auto zeros_of = [](int64_t rows, int64_t) { return zeros({rows, 4}); };
  std::atomic<int> lost = 0;
  std::atomic<int> made = 0;
  std::vector<std::thread> workers;
  for (int w = 0; w < kWorkers; ++w) {
    workers.emplace_back([&] {
      LossyLink first(test.address(0).address, 5);
      LossyLink second(test.address(1).address, 5);
      const auto servers = test.connect({first.address(), second.address()});
      const auto make = [&](const char* name, int64_t parts) {
        bool is_new = false;
        ParameterHandle out = servers->make_or_bind({.name = name, .shape = {8, 4}, .parts = parts},
                                                    zeros_of, &is_new);
        made += is_new ? 1 : 0;
        return out;
      };
      const ParameterHandle pushed = make("pushed", 2);
      const ParameterHandle written = make("written", 1);
      const ParameterHandle scattered = make("scattered", 2);
      const IndexedSlices slices{
          .values = ones({2, 4}), .indices = tensor({1, 7}, kInt64), .dense_shape = {8, 4}};
      const variables::RowSum rows{{1, 7}, full({2, 4}, -1)};
      for (int s = 0; s < kSteps; ++s) {
        ParameterServers::Push push(*servers);
        push.dense(pushed, sgd, full({8, 4}, -1));
        push.rows(pushed, sgd, rows, /*others_too=*/false);
        push.wait();
        servers->write(written, {}, variables::Write::kAdd, ones({8, 4}));
        servers->scatter(scattered, variables::Scatter::kAdd, slices);
      }
      lost += first.lost() + second.lost();
    });
  }
  for (std::thread& each : workers) each.join();
  EXPECT_GT(lost, kWorkers * kSteps / 5) << "else nothing was tested";
  EXPECT_EQ(made, 3) << "each variable is made once";
  const auto servers = test.connect();
  const float steps = kWorkers * kSteps;
  EXPECT_TRUE(counts(*servers, "written").equal(full({8, 4}, steps)));
  Tensor two_rows = zeros({8, 4});
  two_rows.select(0, 1).fill_(steps);
  two_rows.select(0, 7).fill_(steps);
  EXPECT_TRUE(counts(*servers, "scattered").equal(two_rows));
  EXPECT_TRUE(counts(*servers, "pushed").equal(full({8, 4}, steps) + two_rows));
}

// The same number over one way and then over the other, as when an answer in a lane was lost, and
// of a call that still waits for its turn.
TEST(Calls, ANumberThatComesOverBothWaysCountsOnce) {
  const TestServers test(1);
  const auto servers = test.connect();
  const ParameterHandle w = servers->make_or_bind(
      {.name = "w", .shape = {4}}, [](int64_t rows, int64_t) { return zeros({rows}); });
  const auto client = std::make_shared<rpc::RpcClient>(test.address(0));
  CallNumbers numbers(client);
  numbers.open(std::chrono::seconds(10), /*wait_for_server=*/false);
  rpc::MessageWriter header;
  header.number(w.shards[0].id);
  write_step(header, {.rule = update_rules::SgdStep{1}, .how = {}, .slots = {}});
  header.signed_number(0);
  header.signed_number(4);
  rpc::Payload push = message(header);
  append_bytes(push, full({4}, -1));
  const auto in_lane = [&](const rpc::Payload& call) {
    rpc::LaneStart started = client->start_in_lane("ps.push", call, {});
    while (!started.call) {
      std::this_thread::yield();
      started = client->start_in_lane("ps.push", call, {});
    }
    return std::move(started.call);
  };
  const auto expect_done = [](rpc::LaneCall& call) {
    call.wait(std::chrono::steady_clock::time_point::max());
    EXPECT_FALSE(call.take().value().error);
  };
  testing::run_with_deadline(std::chrono::seconds(60), [&] {
    for (int i = 1; i <= 3; ++i) {
      const CallNumber number = numbers.take().value();
      const rpc::Payload call = numbered(number, push);
      if (i == 1) {
        expect_done(*in_lane(call));
        client->call("ps.push", call);
      } else if (i == 2) {
        client->call("ps.push", call);
        expect_done(*in_lane(call));
      } else {  // side by side
        const auto first = in_lane(call);
        client->call("ps.push", call);
        expect_done(*first);
      }
      EXPECT_TRUE(servers->pull(w).equal(full({4}, i))) << i;
      numbers.end(number);
    }
  });
}

// A call in a lane takes long: one to another server is sent again, and taken, meanwhile.
TEST(Calls, OneThatIsLateInALaneHoldsNoOtherUp) {
  using std::chrono::milliseconds;
  using std::chrono::steady_clock;
  std::atomic<bool> is_taken = false;
  rpc::RpcServer late({.lanes = {"late", "now"}},
                      {{"late",
                        [&](const rpc::RpcRequest&, const rpc::RpcReply& reply) {
                          const auto until = steady_clock::now() + std::chrono::seconds(20);
                          while (!is_taken && steady_clock::now() < until) {
                            std::this_thread::sleep_for(milliseconds(1));
                          }
                          reply.send(message({}));
                        }},
                       {"now", [](const rpc::RpcRequest&, const rpc::RpcReply& reply) {
                          reply.send(message({}));
                        }}});
  std::atomic<int> tries = 0;
  rpc::RpcServer cut({}, {{"try", [&](const rpc::RpcRequest&, const rpc::RpcReply& reply) {
                             if (++tries < 3) return reply.fail(Unavailable("cut", "ps 1"));
                             reply.send(message({}));
                           }}});
  rpc::RpcClient first({.address = late.address()});
  rpc::RpcClient second({.address = cut.address()});
  testing::run_with_deadline(std::chrono::seconds(60), [&] {
    while (!first.start_in_lane("now", message({}), {}).call) std::this_thread::yield();
    bool is_over = false;
    Calls calls(std::chrono::seconds(30));
    calls.start(first, "late", message({}), [&](const rpc::Payload&) { is_over = true; });
    calls.start(second, "try", message({}), [&](const rpc::Payload&) {
      EXPECT_FALSE(is_over) << "it waited for the other";
      is_taken = true;
    });
    calls.wait();
    EXPECT_TRUE(is_over && is_taken);
  });
}

TEST(Calls, AServerThatWasStartedAnewKnowsNobodyOfBefore) {
  const TestServers test(1);
  rpc::RpcClient client(test.address(0));
  testing::expect_error<FailedPrecondition>({"was restarted", "checkpoint"}, [&] {
    client.call("ps.push", numbered({.client = 1, .sequence = 1, .oldest = 1}, message({})));
  });
}

}  // namespace
}  // namespace cohort::internal::coordinator
