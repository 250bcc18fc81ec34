// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/lane.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include "cohort/rpc/client.h"
#include "cohort/rpc/internal/lane_socket.h"
#include "cohort/rpc/server.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::run_with_deadline;
using TestClock = std::chrono::steady_clock;

const RpcHandler kEchoAll = [](RpcRequest request, RpcReply reply) {
  reply.send(std::move(request.payload));
};

std::string text_of(std::size_t bytes, char with) { return std::string(bytes, with); }

// The first calls of a client find the lane.
bool opens_lane(RpcClient& client, seconds limit = seconds(10)) {
  const auto until = TestClock::now() + limit;
  while (TestClock::now() < until) {
    if (client.start_in_lane("echo", Payload("x"), {}).call) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

std::unique_ptr<LaneCall> begin(RpcClient& client, const char* method, const Payload& request,
                                RpcCallOptions options = {}) {
  return client.start_in_lane(method, request, options).call;
}

RpcResult result_of(LaneCall& call) {
  call.wait(TestClock::time_point::max());
  return call.take().value();
}

std::string answer_of(RpcClient& client, const char* method, const std::string& request) {
  const auto call = begin(client, method, Payload(request), {.answer_bytes = request.size() + 100});
  if (!call) return "no lane";
  const RpcResult result = result_of(*call);
  if (result.error) std::rethrow_exception(result.error);
  return result.payload.text();
}

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
  const std::string text =
      testing::error_text<DataLoss>([&] { answer_of(client, "torn", "x"); });
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
      const std::string text = testing::error_text<DeadlineExceeded>(
          [&] { std::rethrow_exception(result_of(*late).error); });
      EXPECT_NE(text.find("\"wait\": has not answered in time"), std::string::npos) << text;
    }
  });
  over = true;
  traffic.join();
  EXPECT_EQ(answer_of(client, "echo", "still there"), "still there");
  for (const RpcReply& each : kept) each.send(Payload("too late"));
  kept.clear();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(answer_of(client, "echo", "after"), "after");
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
  RpcServer server({.lanes = {"who", "echo"}}, {{"who",
                                         [](RpcRequest request, RpcReply reply) {
                                           reply.send(
                                               Payload(std::to_string(request.caller.generation)));
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

// What a client can do that has the memory, and means no good: numbers that lie, states that are
// none of its business, and a bell that rings all the time.
TEST(Lane, F8_AServerBelievesNoNumberOfAClient) {
  auto server = std::make_optional<RpcServer>(
      RpcServerOptions{.lanes = {"echo"}},
      std::map<std::string, RpcHandler>{{"echo", kEchoAll}});
  RpcClient client({.address = server->address()});
  ASSERT_TRUE(opens_lane(client));
  const LaneOffer offer = read_offer(client.call(kLaneMethod, Payload()));
  ClaimsSigner signer{Secret()};
  const LaneSocket socket = connect_lane(offer.socket);
  const int fd = receive_memory(socket, signer.header({}, kLaneMethod));
  EXPECT_NE(::ftruncate(fd, 0), 0) << "else it could end the server by SIGBUS";
  const LaneMemory memory = LaneMemory::open(fd);
  ::close(fd);
  const auto ask = [&](std::size_t place, uint32_t method, uint64_t bytes) {
    LanePlace& here = memory.place(place);
    here.method = method;
    here.request_bytes = bytes;
    here.state.store(kLaneAsked);
    memory.asked().add();
    runtime::SpinBudget budget(0);
    while (here.state.load() == kLaneAsked) here.state.wait_while(kLaneAsked, budget, seconds(1));
    return here.code.load();
  };
  run_with_deadline(seconds(60), [&] {
    const auto bad = static_cast<uint32_t>(ErrorCode::kDataLoss);
    for (const uint64_t bytes : {LaneMemory::kSmallBytes + 1, ~std::size_t{0}, std::size_t{1} << 63}) {
      EXPECT_EQ(ask(0, 0, bytes), bad);
    }
    EXPECT_EQ(ask(1, 1, 8), bad);
    EXPECT_EQ(ask(1, ~uint32_t{0}, 8), bad);
    EXPECT_EQ(ask(2, 0, LaneMemory::kSmallBytes), kLaneElsewhere) << "no room for the answer";
    EXPECT_EQ(ask(3, 0, 16), 0U);
    std::atomic<bool> over = false;
    std::thread noise([&] {
      while (!over) {
        for (std::size_t i = 0; i < LaneMemory::kPlaces; ++i) {
          memory.place(i).is_held = static_cast<uint32_t>(i);
          memory.place(i).state.store(kLaneAsked);
        }
        memory.asked().add();
      }
    });
    for (int i = 0; i < 100; ++i) EXPECT_EQ(answer_of(client, "echo", "other"), "other");
    server.reset();
    over = true;
    noise.join();
  });
}

TEST(Lane, F8_AClientBelievesNoNumberOfAServer) {
  RpcServer server({.lanes = {"echo"}}, {{"echo", kEchoAll}});
  std::string name;
  const LaneSocket listener = listen_for_lanes(&name);
  int fd = -1;
  const LaneMemory memory = LaneMemory::create(&fd);
  auto opened = std::async(std::launch::async, [&] {
    return Lane::open({.socket = name, .methods = {"echo"}}, {.name = "ps 0"}, "proof");
  });
  LaneSocket guest;
  while (guest.fd() < 0) guest = LaneSocket(::accept4(listener.fd(), nullptr, nullptr, 0));
  ASSERT_TRUE(send_memory(guest, fd));
  ::close(fd);
  const std::shared_ptr<Lane> lane = opened.get();
  struct Numbers {
    uint64_t head, at, body;
  };
  for (const Numbers& n : {Numbers{193, 0, 0}, Numbers{0, LaneMemory::kSmallBytes + 1, 0},
                           Numbers{0, 8, LaneMemory::kSmallBytes}, Numbers{0, 8, ~uint64_t{0}}}) {
    const LaneStart started = lane->start("echo", Payload("x"), 0, seconds(10));
    ASSERT_TRUE(started.call);
    LanePlace& here = memory.place(0);
    here.head_bytes = n.head;
    here.body_at = n.at;
    here.body_bytes = n.body;
    here.state.store(kLaneAnswered);
    EXPECT_THROW(std::rethrow_exception(result_of(*started.call).error), DataLoss);
  }
  // It closes its socket in the middle of a call.
  const LaneStart last = lane->start("echo", Payload("x"), 0, seconds(60));
  guest = LaneSocket();
  run_with_deadline(seconds(20), [&] {
    EXPECT_THROW(std::rethrow_exception(result_of(*last.call).error), Unavailable);
  });
  EXPECT_TRUE(lane->is_gone());
}

std::size_t files_of_shared_memory() {
  std::error_code none;
  const auto all = std::filesystem::directory_iterator("/dev/shm", none);
  return none ? 0 : static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// A client that is stopped, and then killed, in the middle of a call.
TEST(Lane, AClientThatStandsStillOrDiesHoldsNobodyUp) {
  const std::size_t files = files_of_shared_memory();
  auto server = std::make_optional<RpcServer>(
      RpcServerOptions{.lanes = {"echo"}},
      std::map<std::string, RpcHandler>{{"echo", kEchoAll}});
  std::string name;
  {
    RpcClient client({.address = server->address()});
    name = read_offer(client.call(kLaneMethod, Payload())).socket;
  }
  int ready[2] = {-1, -1};
  ASSERT_EQ(::pipe(ready), 0);
  const std::string proof = ClaimsSigner(Secret()).header({}, kLaneMethod);
  const pid_t child = ::fork();
  if (child == 0) {  // no gRPC here: system calls, and plain memory
    const std::shared_ptr<Lane> lane = Lane::open({.socket = name, .methods = {"echo"}}, {}, proof);
    const LaneStart started = lane->start("echo", Payload("x"), 0, seconds(60));
    [[maybe_unused]] const ssize_t told = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::kill(child, SIGSTOP);
  run_with_deadline(seconds(30), [&] {
    RpcClient other({.address = server->address()});
    ASSERT_TRUE(opens_lane(other));
    EXPECT_EQ(answer_of(other, "echo", "other"), "other");
    EXPECT_GE(server->lanes(), 2U);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    while (server->lanes() > 1) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_EQ(answer_of(other, "echo", "other"), "other");
    server.reset();
  });
  EXPECT_EQ(files_of_shared_memory(), files) << "memory of a lane is no file";
  ::close(ready[0]);
  ::close(ready[1]);
}

// What fork copies has no share of the lane: its end is seen though the child lives.
TEST(Lane, ChildrenHaveNoShareOfIt) {
  RpcServer server({.lanes = {"echo"}}, {{"echo", kEchoAll}});
  auto client = std::make_optional<RpcClient>(RpcClientOptions{.address = server.address()});
  ASSERT_TRUE(opens_lane(*client));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const bool has = client->start_in_lane("echo", Payload("x"), {}).call != nullptr;
    if (has) ::_exit(1);
    for (;;) ::pause();
  }
  client.reset();
  run_with_deadline(seconds(30), [&] {
    while (server.lanes() > 0) std::this_thread::sleep_for(milliseconds(1));
  });
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, WNOHANG), 0) << "it has ended: " << status;
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
}

TEST(Lane, ALaneOfAServerThatWasStartedAgainIsFound) {
  auto server = std::make_optional<RpcServer>(
      RpcServerOptions{.lanes = {"echo"}},
      std::map<std::string, RpcHandler>{{"echo", kEchoAll}});
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
