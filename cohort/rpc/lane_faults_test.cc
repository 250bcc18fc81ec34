// SPDX-License-Identifier: Apache-2.0
//
// Lanes of which the other side lies, stands still or dies.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cohort/rpc/internal/lane_socket.h"
#include "cohort/rpc/lane.h"
#include "cohort/rpc/test_lanes.h"
#include "cohort/testing/deadline.h"

namespace cohort::internal::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::run_with_deadline;

// What a client can do that has the memory, and means no good: numbers that lie, states that are
// none of its business, and a bell that rings all the time.
TEST(Lane, F8_AServerBelievesNoNumberOfAClient) {
  auto server = std::make_optional<RpcServer>(
      RpcServerOptions{.lanes = {"echo"}}, std::map<std::string, RpcHandler>{{"echo", kEchoAll}});
  RpcClient client({.address = server->address()});
  ASSERT_TRUE(opens_lane(client));
  const LaneOffer offer = read_offer(client.call(kLaneMethod, Payload()));
  ClaimsSigner signer{Secret()};
  const auto soon = TestClock::now() + seconds(20);
  const LaneSocket socket = connect_lane(offer.socket, soon);
  const int fd = receive_memory(socket, signer.header({}, kLaneMethod), soon);
  EXPECT_NE(::ftruncate(fd, 0), 0) << "else it could end the server by SIGBUS";
  const LaneMemory memory = LaneMemory::open(fd);
  ::close(fd);
  const auto ask = [&](std::size_t place, uint32_t method, uint64_t bytes) {
    LanePlace& here = memory.place(place);
    here.method = method;
    here.request_bytes = bytes;
    here.state.store(kLaneAsked);
    memory.asked(place).add();
    runtime::SpinBudget budget(0);
    while (here.state.load() == kLaneAsked) here.state.wait_while(kLaneAsked, budget, seconds(1));
    return here.code.load();
  };
  run_with_deadline(seconds(60), [&] {
    const auto bad = static_cast<uint32_t>(ErrorCode::kDataLoss);
    for (const uint64_t bytes :
         {LaneMemory::kSmallBytes + 1, ~std::size_t{0}, std::size_t{1} << 63}) {
      EXPECT_EQ(ask(0, 0, bytes), bad);
    }
    EXPECT_EQ(ask(1, 1, 8), bad);
    EXPECT_EQ(ask(1, ~uint32_t{0}, 8), bad);
    EXPECT_EQ(ask(2, 0, LaneMemory::kSmallBytes), kLaneElsewhere) << "no room for the answer";
    EXPECT_EQ(ask(3, 0, 16), 0U);
    // It says for ever that it is writing, and more than there is: others are served.
    for (const uint64_t bytes : {uint64_t{100}, LaneMemory::kLargeBytes, ~uint64_t{0}}) {
      const std::size_t large = LaneMemory::kSmallPlaces;
      memory.place(large).written = bytes;
      memory.place(large).state.store(kLaneWriting);
      memory.asked(large).add();
      EXPECT_EQ(ask(large + 1, 0, 16), 0U);
      EXPECT_EQ(ask(4, 0, 16), 0U);
    }
    std::atomic<bool> over = false;
    std::thread noise([&] {
      while (!over) {
        for (std::size_t i = 0; i < LaneMemory::kPlaces; ++i) {
          memory.place(i).is_held = static_cast<uint32_t>(i);
          memory.place(i).written = i << (i % 64);
          memory.place(i).state.store(i % 3 == 0 ? kLaneWriting : kLaneAsked);
          memory.asked(i).add();
        }
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
    const LaneStart started = lane->start("echo", Payload("x"), seconds(10));
    ASSERT_TRUE(started.call);
    LanePlace& here = memory.place(0);
    here.head_bytes = n.head;
    here.body_at = n.at;
    here.body_bytes = n.body;
    here.state.store(kLaneAnswered);
    EXPECT_THROW(std::rethrow_exception(result_of(*started.call).error), DataLoss);
  }
  // It closes its socket in the middle of a call.
  const LaneStart last = lane->start("echo", Payload("x"), seconds(60));
  guest = LaneSocket();
  run_with_deadline(seconds(20), [&] {
    EXPECT_THROW(std::rethrow_exception(result_of(*last.call).error), Unavailable);
  });
  EXPECT_TRUE(lane->is_gone());
}

// Lanes that this process has, at either end.
int mapped_lanes() {
  int out = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    out += line.find("cohort-lane") == std::string::npos ? 0 : 1;
  }
  return out;
}

// A client that is stopped, and then killed, in the middle of a call. Its memory has no name: what
// is left of it would be seen among what this process has mapped.
TEST(Lane, AClientThatStandsStillOrDiesHoldsNobodyUp) {
  std::vector<RpcReply> kept;
  const auto make = [&] {
    return std::make_optional<RpcServer>(
        RpcServerOptions{.lanes = {"wait", "echo"}},
        std::map<std::string, RpcHandler>{
            {"wait", [&](RpcRequest, RpcReply reply) { kept.push_back(std::move(reply)); }},
            {"echo", kEchoAll}});
  };
  for (const bool ends_while_stopped : {false, true}) {
    auto server = make();
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
      const auto lane = Lane::open({.socket = name, .methods = {"wait"}}, {}, proof);
      const LaneStart started = lane->start("wait", Payload("x"), seconds(60));
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
      if (ends_while_stopped) server.reset();
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
      if (ends_while_stopped) return;
      while (server->lanes() > 1) std::this_thread::sleep_for(milliseconds(1));
      EXPECT_EQ(answer_of(other, "echo", "other"), "other");
      server.reset();
    });
    kept.clear();
    EXPECT_EQ(mapped_lanes(), 0);
    ::close(ready[0]);
    ::close(ready[1]);
  }
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

}  // namespace
}  // namespace cohort::internal::rpc
