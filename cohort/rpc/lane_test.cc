// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <optional>
#include <thread>

#include "cohort/rpc/test_lanes.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::run_with_deadline;

TEST(Lane, CarriesTheSameCallsAsGrpc) {
  RpcServer server({.lanes = {"echo", "who", "torn", "never"}},
                   {{"echo", kEchoAll},
                    {"who",
                     [](RpcRequest request, RpcReply reply) {
                       reply.send(Payload(request.caller.task + (request.may_block ? "!" : "")));
                     }},
                    {"torn", [](RpcRequest, RpcReply) { throw DataLoss("the rows are torn"); }},
                    {"never", [](RpcRequest, RpcReply) {}},
                    {"other", kEchoAll}});
  RpcClient client({.address = server.address(), .server_name = "ps 0", .claims = {.task = "w 1"}});
  ASSERT_TRUE(opens_lane(client));
  EXPECT_TRUE(client.has_lane());
  for (const std::size_t bytes : {0UL, 1UL, 192UL, 193UL, 60'000UL, 70'000UL, 2UL << 20}) {
    EXPECT_EQ(answer_of(client, "echo", text_of(bytes, 'a')), text_of(bytes, 'a')) << bytes;
  }
  EXPECT_EQ(answer_of(client, "who", ""), "w 1!");
  EXPECT_EQ(client.call("who", Payload()).text(), "w 1") << "gRPC's handlers must not block";
  const std::string text = testing::error_text<DataLoss>([&] { answer_of(client, "torn", "x"); });
  for (const char* part : {"ps 0 (127.0.0.1:", "\"torn\"", "the rows are torn", " s)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  EXPECT_THROW(answer_of(client, "never", "x"), Internal);
  EXPECT_FALSE(begin(client, "other", Payload("x"))) << "it is none of the methods that may";
  EXPECT_FALSE(begin(client, "echo", Payload(text_of(5 << 20, 'a')))) << "it is too large";
}

TEST(Lane, AnswersAreWrittenWhereTheyAreSentFrom) {
  RpcServer server({.lanes = {"fill", "echo"}},
                   {{"fill",
                     [](RpcRequest request, RpcReply reply) {
                       const std::size_t bytes = std::stoul(request.payload.text());
                       const RpcReply::Room room = reply.room(bytes);
                       Payload out("head");
                       if (room.bytes.empty()) return reply.send(Payload("no room"));
                       std::fill(room.bytes.begin(), room.bytes.end(), std::byte{'z'});
                       out.append({.bytes = room.bytes, .owner = room.owner});
                       reply.send(out);
                     }},
                    {"echo", kEchoAll}});
  RpcClient client({.address = server.address()});
  ASSERT_TRUE(opens_lane(client));
  const auto call = begin(client, "fill", Payload("4194304"), {.answer_bytes = 4 << 20});
  ASSERT_TRUE(call);
  EXPECT_EQ(result_of(*call).payload.text(), "head" + text_of(4 << 20, 'z'));
  EXPECT_EQ(answer_of(client, "fill", "100000"), "no room") << "the client expected few bytes";
  EXPECT_EQ(client.call("fill", Payload("7")).text(), "no room") << "gRPC has none";
  // One that is larger than was expected is told to come by gRPC.
  const auto large = begin(client, "echo", Payload(text_of(40'000, 'e')));
  ASSERT_TRUE(large);
  large->wait(TestClock::time_point::max());
  EXPECT_FALSE(large->take().has_value());
}

// Half of it is there, and in its place, while the server has not answered.
TEST(Lane, AnAnswerIsTakenWhileItIsWritten) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  std::promise<void> taken;
  const std::shared_future<void> goes_on = taken.get_future().share();
  RpcServer server({.lanes = {"fill", "echo"}},
                   {{"fill",
                     [&](RpcRequest request, RpcReply reply) {
                       const RpcReply::Room room = reply.room(kBytes);
                       std::fill_n(room.bytes.begin(), kBytes / 2, std::byte{'a'});
                       room.filled->store(kBytes / 2);
                       goes_on.wait();
                       if (request.payload.text() == "fail") throw DataLoss("half of it");
                       if (request.payload.text() == "other") return reply.send(Payload("other"));
                       std::fill_n(room.bytes.begin() + kBytes / 2, kBytes / 2, std::byte{'b'});
                       Payload out("head");
                       out.append({.bytes = room.bytes, .owner = room.owner});
                       reply.send(out);
                     }},
                    {"echo", kEchoAll}});
  RpcClient client({.address = server.address()});
  ASSERT_TRUE(opens_lane(client));
  std::string to(kBytes, '-');
  const RpcCallOptions options{.answer_bytes = kBytes + 100,
                               .answer_to = std::as_writable_bytes(std::span(to))};
  const auto call = begin(client, "fill", Payload("x"), options);
  ASSERT_TRUE(call);
  run_with_deadline(seconds(20), [&] {
    while (to[kBytes / 2 - 1] != 'a') call->wait(TestClock::now() + milliseconds(1));
  });
  EXPECT_FALSE(call->is_over());
  EXPECT_EQ(to[kBytes / 2], '-');
  taken.set_value();
  const RpcResult result = result_of(*call);
  EXPECT_EQ(to, text_of(kBytes / 2, 'a') + text_of(kBytes / 2, 'b'));
  EXPECT_EQ(result.payload.text(), "head" + to);
  EXPECT_EQ(static_cast<const void*>(result.payload.pieces().back().bytes.data()), to.data());
  // What comes of it is what the server says in the end.
  EXPECT_THROW(
      std::rethrow_exception(result_of(*begin(client, "fill", Payload("fail"), options)).error),
      DataLoss);
  EXPECT_EQ(result_of(*begin(client, "fill", Payload("other"), options)).payload.text(), "other");
  const std::string fits_not = text_of(kBytes - 1, 'c');
  EXPECT_EQ(result_of(*begin(client, "echo", Payload(fits_not), options)).payload.text(), fits_not);
}

TEST(Lane, SaysWhichPlaceWasTaken) {
  RpcServer server({.lanes = {"echo"}}, {{"echo", kEchoAll}});
  RpcClient client({.address = server.address()});
  ASSERT_TRUE(opens_lane(client));
  const auto is_large = [&](std::size_t request, std::size_t answer) {
    const LaneStart started =
        client.start_in_lane("echo", Payload(text_of(request, 'x')), {.answer_bytes = answer});
    if (started.call) result_of(*started.call);
    return started.call && started.is_large;
  };
  EXPECT_FALSE(is_large(1, 0));
  EXPECT_FALSE(is_large(LaneMemory::kSmallBytes / 2, LaneMemory::kSmallBytes / 2));
  EXPECT_TRUE(is_large(1, LaneMemory::kSmallBytes));
  EXPECT_TRUE(is_large(LaneMemory::kSmallBytes, 0));
}

// A place of which the server reads the request is not used again, however often others are.
TEST(Lane, RequestsThatAreHeldStayAsTheyAre) {
  std::vector<Payload> held;
  RpcServer server({.lanes = {"hold", "echo"}}, {{"hold",
                                                  [&](RpcRequest request, RpcReply reply) {
                                                    held.push_back(request.payload);
                                                    reply.send(Payload("held"));
                                                  }},
                                                 {"echo", kEchoAll}});
  RpcClient client({.address = server.address()});
  ASSERT_TRUE(opens_lane(client));
  std::size_t in_lane = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string text = "message " + std::to_string(i);
    if (const auto call = begin(client, "hold", Payload(text))) {
      ++in_lane;
      EXPECT_EQ(result_of(*call).payload.text(), "held");
    } else {
      EXPECT_EQ(client.call("hold", Payload(text)).text(), "held");
    }
  }
  EXPECT_GE(in_lane, LaneMemory::kSmallPlaces - 1);
  EXPECT_LE(in_lane, LaneMemory::kSmallPlaces);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(held[static_cast<std::size_t>(i)].text(), "message " + std::to_string(i));
  }
  held.clear();
  for (int i = 0; i < 200; ++i) EXPECT_EQ(answer_of(client, "echo", "y"), "y");
}

TEST(Lane, AnswersThatAreHeldStayAsTheyAre) {
  RpcServer server({.lanes = {"echo"}}, {{"echo", kEchoAll}});
  RpcClient client({.address = server.address()});
  ASSERT_TRUE(opens_lane(client));
  std::vector<Payload> held;
  for (int i = 0; i < 80; ++i) {
    const std::string text = text_of(1000, static_cast<char>('A' + i % 50));
    const LaneStart started = client.start_in_lane("echo", Payload(text), {.answer_bytes = 2000});
    if (!started.call) {
      EXPECT_TRUE(started.is_full);
      break;
    }
    held.push_back(result_of(*started.call).payload);
  }
  EXPECT_GE(held.size(), LaneMemory::kSmallPlaces - 1);
  for (std::size_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(held[i].text(), text_of(1000, static_cast<char>('A' + i % 50)));
  }
  held.clear();
  EXPECT_TRUE(begin(client, "echo", Payload("there is room")));
}

// One that takes long, as of many numbers, ends only when the small one is done.
TEST(Lane, ASmallCallDoesNotWaitForALargeOne) {
  std::promise<void> begun, asked;
  const std::shared_future<void> done = asked.get_future().share();
  RpcServer server({.lanes = {"large", "small", "echo"}}, {{"large",
                                                            [&](RpcRequest, RpcReply reply) {
                                                              begun.set_value();
                                                              done.wait();
                                                              reply.send(Payload("done"));
                                                            }},
                                                           {"small",
                                                            [&](RpcRequest, RpcReply reply) {
                                                              asked.set_value();
                                                              reply.send(Payload("done"));
                                                            }},
                                                           {"echo", kEchoAll}});
  RpcClient client({.address = server.address()});
  ASSERT_TRUE(opens_lane(client));
  run_with_deadline(seconds(20), [&] {
    const auto large = begin(client, "large", Payload("x"), {.answer_bytes = std::size_t{1} << 20});
    ASSERT_TRUE(large);
    begun.get_future().wait();
    EXPECT_EQ(answer_of(client, "small", "x"), "done");
    EXPECT_EQ(result_of(*large).payload.text(), "done");
  });
}

// Deadlines end calls one by one, also while others come and go all the time.
TEST(Lane, ALateCallEndsAloneAndInTime) {
  std::vector<RpcReply> kept;
  RpcServer server({.lanes = {"wait", "echo"}},
                   {{"wait", [&](RpcRequest, RpcReply reply) { kept.push_back(std::move(reply)); }},
                    {"echo", kEchoAll}});
  RpcClient client({.address = server.address(), .server_name = "ps 0"});
  ASSERT_TRUE(opens_lane(client));
  std::atomic<bool> over = false;
  std::thread traffic([&] {
    while (!over) EXPECT_EQ(answer_of(client, "echo", "traffic"), "traffic");
  });
  run_with_deadline(seconds(30), [&] {
    for (int i = 0; i < 3; ++i) {
      const auto late = begin(client, "wait", Payload("x"), {.timeout = milliseconds(50)});
      ASSERT_TRUE(late);
      const auto begun = TestClock::now();
      const std::string text = testing::error_text<DeadlineExceeded>(
          [&] { std::rethrow_exception(result_of(*late).error); });
      EXPECT_NE(text.find("\"wait\": has not answered in time"), std::string::npos) << text;
      EXPECT_LT(TestClock::now() - begun, seconds(3));
    }
  });
  over = true;
  traffic.join();
  EXPECT_EQ(answer_of(client, "echo", "still there"), "still there");
  for (const RpcReply& each : kept) each.send(Payload("too late"));
  kept.clear();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(answer_of(client, "echo", "after"), "after");
}

// Several threads whose calls end by their deadlines all the time, so that places change hands in
// the middle of calls: who gets an answer gets its own.
TEST(Lane, AnswersAreOfWhatWasAsked) {
  std::atomic<int> calls = 0;
  RpcServer server({.lanes = {"slow", "echo"}},
                   {{"slow",
                     [&](RpcRequest request, RpcReply reply) {
                       const int wait = ++calls % 16 == 0 ? 3000 : 0;
                       std::this_thread::sleep_for(std::chrono::microseconds(wait));
                       reply.send(std::move(request.payload));
                     }},
                    {"echo", kEchoAll}});
  RpcClient client({.address = server.address()});
  ASSERT_TRUE(opens_lane(client));
  std::atomic<int> answered = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto until = TestClock::now() + milliseconds(1500);
      for (int i = 0; TestClock::now() < until; ++i) {
        const std::string text = std::to_string(t) + ' ' + std::to_string(i);
        const auto call =
            begin(client, "slow", Payload(text), {.timeout = milliseconds(1 + i % 5)});
        if (!call) continue;  // it is full
        const RpcResult result = result_of(*call);
        if (result.error) continue;  // too late
        ++answered;
        EXPECT_EQ(result.payload.text(), text);
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_GT(answered, 100);
}

TEST(Lane, ACancelledClientAsksNothing) {
  std::atomic<int> heard = 0;
  RpcServer server({.lanes = {"count", "echo"}}, {{"count",
                                                   [&](RpcRequest, RpcReply reply) {
                                                     ++heard;
                                                     reply.send(Payload());
                                                   }},
                                                  {"echo", kEchoAll}});
  RpcClient client({.address = server.address()});
  ASSERT_TRUE(opens_lane(client));
  client.cancel();
  EXPECT_FALSE(begin(client, "count", Payload("x")));
  EXPECT_EQ(heard, 0);
}

TEST(Lane, IsFullWhereNothingIsAnswered) {
  std::vector<RpcReply> kept;
  RpcServer server({.lanes = {"wait", "echo"}},
                   {{"wait", [&](RpcRequest, RpcReply reply) { kept.push_back(std::move(reply)); }},
                    {"echo", kEchoAll}});
  RpcClient client({.address = server.address()});
  ASSERT_TRUE(opens_lane(client));
  std::vector<std::unique_ptr<LaneCall>> open;
  LaneStart last;
  while ((last = client.start_in_lane("wait", Payload("x"), {})).call) {
    open.push_back(std::move(last.call));
    ASSERT_LE(open.size(), LaneMemory::kPlaces);
  }
  EXPECT_TRUE(last.is_full);
  EXPECT_EQ(client.call("echo", Payload("by gRPC")).text(), "by gRPC");
}

TEST(Lane, AnEndingServerAnswersWhoWaits) {
  std::promise<RpcReply> arrived;
  auto server = std::make_optional<RpcServer>(
      RpcServerOptions{.lanes = {"wait", "echo"}},
      std::map<std::string, RpcHandler>{
          {"wait", [&](RpcRequest, RpcReply reply) { arrived.set_value(reply); }},
          {"echo", kEchoAll}});
  RpcClient client({.address = server->address()});
  ASSERT_TRUE(opens_lane(client));
  const auto call = begin(client, "wait", Payload("x"));
  ASSERT_TRUE(call);
  const RpcReply late = arrived.get_future().get();
  run_with_deadline(seconds(20), [&] {
    server.reset();
    EXPECT_THROW(std::rethrow_exception(result_of(*call).error), Unavailable);
  });
  late.send(Payload("nobody hears it"));
  EXPECT_FALSE(begin(client, "echo", Payload("x")));
}

TEST(Lane, AnEndingClientEndsItsCalls) {
  std::vector<RpcReply> kept;
  RpcServer server({.lanes = {"wait", "echo"}},
                   {{"wait", [&](RpcRequest, RpcReply reply) { kept.push_back(std::move(reply)); }},
                    {"echo", kEchoAll}});
  std::unique_ptr<LaneCall> call;
  {
    RpcClient client({.address = server.address()});
    ASSERT_TRUE(opens_lane(client));
    call = begin(client, "wait", Payload("x"), {.timeout = seconds(60)});
  }
  ASSERT_TRUE(call);
  run_with_deadline(seconds(20), [&] {
    EXPECT_THROW(std::rethrow_exception(result_of(*call).error), Cancelled);
  });
}

TEST(Lane, ClientsThatWentLeaveNothing) {
  RpcServer server({.lanes = {"echo"}}, {{"echo", kEchoAll}});
  run_with_deadline(seconds(60), [&] {
    for (int i = 0; i < 30; ++i) {
      RpcClient client({.address = server.address()});
      while (server.lanes() >= kMostLanes / 2) std::this_thread::sleep_for(milliseconds(1));
      ASSERT_TRUE(opens_lane(client));
    }
    while (server.lanes() > 0) std::this_thread::sleep_for(milliseconds(1));
  });
}

TEST(Lane, AServerTakesNoMoreThanItSays) {
  RpcServer server({.lanes = {"echo"}}, {{"echo", kEchoAll}});
  std::vector<std::unique_ptr<RpcClient>> clients;
  for (std::size_t i = 0; i < kMostLanes; ++i) {
    clients.push_back(std::make_unique<RpcClient>(RpcClientOptions{.address = server.address()}));
    ASSERT_TRUE(opens_lane(*clients.back()));
  }
  RpcClient late({.address = server.address()});
  EXPECT_FALSE(opens_lane(late, seconds(1)));
  EXPECT_EQ(server.lanes(), kMostLanes);
  EXPECT_EQ(late.call("echo", Payload("by gRPC")).text(), "by gRPC");
  clients.back()->set_claims({.generation = 2});  // its old lane may be there for a moment yet
  EXPECT_TRUE(opens_lane(*clients.back()));
}

TEST(Lane, F3_OnlyWhoKnowsTheTokenGetsMemory) {
  const Secret token("a token that nobody can guess");
  RpcServer server({.security = {.job = "job", .token = token}, .lanes = {"echo"}},
                   {{"echo", kEchoAll}});
  RpcClient client({.address = server.address(), .security = {.job = "job", .token = token}});
  ASSERT_TRUE(opens_lane(client));
  const LaneOffer offer = read_offer(client.call(kLaneMethod, Payload()));
  for (const RpcClaims& claims : {RpcClaims{.job = "job"}, RpcClaims{.job = "another"}}) {
    ClaimsSigner wrong(Secret("another of that length ...."));
    EXPECT_THROW(Lane::open(offer, {}, wrong.header(claims, kLaneMethod)), Error);
  }
  ClaimsSigner right(token);
  const std::string proof = right.header({.job = "job"}, kLaneMethod);
  EXPECT_THROW(Lane::open(offer, {}, ClaimsSigner(token).header({.job = "job"}, "other")), Error)
      << "a proof is of one method";
  EXPECT_NE(Lane::open(offer, {}, proof), nullptr);
  EXPECT_THROW(Lane::open(offer, {}, proof), Error) << "a proof counts once";
  RpcClient stranger({.address = server.address(), .security = {.job = "job"}});
  EXPECT_FALSE(opens_lane(stranger, seconds(1)));
}

TEST(Lane, CallersAreWhoTheyLastSaid) {
  RpcServer server({.lanes = {"who", "echo"}},
                   {{"who",
                     [](RpcRequest request, RpcReply reply) {
                       reply.send(Payload(std::to_string(request.caller.generation)));
                     }},
                    {"echo", kEchoAll}});
  RpcClient client({.address = server.address(), .claims = {.generation = 3}});
  ASSERT_TRUE(opens_lane(client));
  EXPECT_EQ(answer_of(client, "who", ""), "3");
  client.set_claims({.generation = 4});
  ASSERT_TRUE(opens_lane(client));
  EXPECT_EQ(answer_of(client, "who", ""), "4");
}

TEST(Lane, IsTurnedOff) {
  RpcServer server({.lanes = {"echo"}}, {{"echo", kEchoAll}});
  RpcServer without({}, {{"echo", kEchoAll}});
  RpcClient off({.address = server.address(), .lanes = false});
  RpcClient none({.address = without.address()});
  EXPECT_FALSE(opens_lane(off, seconds(1)));
  EXPECT_FALSE(opens_lane(none, seconds(1)));
  ::setenv("COHORT_LANES", "0", 1);
  RpcClient forbidden({.address = server.address()});
  EXPECT_FALSE(opens_lane(forbidden, seconds(1)));
  ::unsetenv("COHORT_LANES");
  EXPECT_EQ(server.lanes(), 0U);
}

TEST(Lane, ALaneOfAServerThatWasStartedAgainIsFound) {
  auto server = std::make_optional<RpcServer>(
      RpcServerOptions{.lanes = {"echo"}}, std::map<std::string, RpcHandler>{{"echo", kEchoAll}});
  const std::string address = server->address();
  RpcClient client({.address = address});
  ASSERT_TRUE(opens_lane(client));
  server.reset();
  EXPECT_FALSE(begin(client, "echo", Payload("x")));
  server.emplace(RpcServerOptions{.address = address, .lanes = {"echo"}},
                 std::map<std::string, RpcHandler>{{"echo", kEchoAll}});
  ASSERT_TRUE(opens_lane(client));
  EXPECT_EQ(answer_of(client, "echo", "anew"), "anew");
}

}  // namespace
}  // namespace cohort::internal::rpc
