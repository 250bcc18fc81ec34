// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/reserved_ports.h"
#include "cohort/base/sanitizers.h"
#include "cohort/rpc/client.h"
#include "cohort/rpc/server.h"
#include "cohort/rpc/stalled_link.h"
#include "cohort/testing/comes_true.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::rpc {
namespace {

using base::ReservedPorts;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::error_text;
using testing::run_with_deadline;

const RpcHandler kEcho = [](RpcRequest request, RpcReply reply) {
  reply.send(std::move(request.payload));
};

TEST(Rpc, AnswersByName) {
  RpcServer server({}, {{"echo", kEcho}, {"who", [](RpcRequest request, RpcReply reply) {
                                            reply.send(Payload(request.caller.task));
                                          }}});
  RpcClient client({.address = server.address(), .claims = {.task = "worker 1"}});
  EXPECT_EQ(client.call("echo", Payload("hello")).text(), "hello");
  EXPECT_EQ(client.call("echo", Payload()).text(), "");
  EXPECT_EQ(client.call("who", Payload()).text(), "worker 1");
  EXPECT_THROW(client.call("what", Payload()), Unimplemented);
}

TEST(Rpc, ServersListenOnPortsThatAreReservedForThem) {
  const ReservedPorts ports(2);
  for (const int port : ports.all()) {
    const std::string address = "127.0.0.1:" + std::to_string(port);
    const RpcServer server({.address = address}, {{"echo", kEcho}});
    EXPECT_EQ(server.address(), address);
    RpcClient client({.address = address});
    EXPECT_EQ(client.call("echo", Payload("hello")).text(), "hello");
  }
}

TEST(Rpc, LargePiecesTravelFromWhereTheyLie) {
  RpcServer server({}, {{"echo", kEcho}});
  RpcClient client({.address = server.address()});
  const auto rows = std::make_shared<const std::vector<std::byte>>(8 << 20, std::byte{7});
  Payload payload("a header");
  payload.append({.bytes = *rows, .owner = rows});
  const std::string answer = client.call("echo", payload).text();
  ASSERT_EQ(answer.size(), 8 + rows->size());
  EXPECT_EQ(answer.substr(0, 9), "a header\a");
  EXPECT_EQ(answer.back(), '\a');
}

TEST(Rpc, ErrorsKeepTheirClass) {
  RpcServer server({},
                   {{"now", [](RpcRequest, RpcReply) { throw DataLoss("the rows are torn"); }},
                    {"later",
                     [](RpcRequest, RpcReply reply) {
                       std::thread([reply] { reply.fail(FailedPrecondition("closed")); }).join();
                     }},
                    {"never", [](RpcRequest, RpcReply) {}}});
  RpcClient client({.address = server.address(), .server_name = "the store"});
  const std::string text = error_text<DataLoss>([&] { client.call("now", Payload()); });
  for (const char* part : {"the store (127.0.0.1:", "\"now\"", "the rows are torn", " s)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  EXPECT_THROW(client.call("later", Payload()), FailedPrecondition);
  EXPECT_THROW(client.call("never", Payload()), Internal);
}

TEST(Rpc, EveryCallHasADeadline) {
  std::promise<RpcReply> kept;
  std::atomic<bool> is_first{true};
  RpcServer server({}, {{"wait", [&](RpcRequest, RpcReply reply) {
                           if (is_first.exchange(false)) kept.set_value(std::move(reply));
                         }}});
  RpcClient client({.address = server.address()});
  std::future<RpcReply> late = kept.get_future();
  run_with_deadline(seconds(20), [&] {
    do {  // a busy machine may end a call before it has arrived
      const std::string text = error_text<DeadlineExceeded>(
          [&] { client.call("wait", Payload(), {.timeout = milliseconds(50)}); });
      EXPECT_NE(text.find("\"wait\": has not answered in time"), std::string::npos) << text;
    } while (late.wait_for(seconds(0)) != std::future_status::ready);
  });
  late.get().send(Payload("too late"));
}

TEST(Rpc, AServerThatIsNotThereIsNamed) {
  std::string address;
  { address = RpcServer({}, {}).address(); }
  RpcClient client({.address = address, .server_name = "the store"});
  run_with_deadline(seconds(30), [&] {
    const std::string text = error_text<Unavailable>([&] { client.call("any", Payload()); });
    EXPECT_NE(text.find("the store (" + address + ")"), std::string::npos) << text;
    EXPECT_THROW(
        client.call("any", Payload(), {.timeout = milliseconds(100), .wait_for_server = true}),
        DeadlineExceeded);
  });
}

TEST(Rpc, AnEndingServerAnswersWhoWaits) {
  std::promise<RpcReply> arrived;
  auto server = std::make_optional<RpcServer>(
      RpcServerOptions{},
      std::map<std::string, RpcHandler>{
          {"wait", [&](RpcRequest, RpcReply reply) { arrived.set_value(reply); }}});
  RpcClient client({.address = server->address()});
  auto waiting = std::async(std::launch::async, [&] { client.call("wait", Payload()); });
  const RpcReply late = arrived.get_future().get();
  run_with_deadline(seconds(20), [&] {
    server.reset();
    EXPECT_THROW(waiting.get(), Unavailable);
  });
  late.send(Payload("nobody hears it"));
}

TEST(Rpc, AnEndingClientWaitsForItsCalls) {
  std::optional<RpcReply> kept;
  RpcServer server({}, {{"wait", [&](RpcRequest, RpcReply reply) { kept = reply; }}});
  std::promise<RpcResult> done;
  run_with_deadline(seconds(20), [&] {
    {
      RpcClient client({.address = server.address()});
      client.start("wait", Payload(), {.timeout = seconds(60)},
                   [&](RpcResult result) { done.set_value(std::move(result)); });
    }
    auto over = done.get_future();
    ASSERT_EQ(over.wait_for(seconds(0)), std::future_status::ready);
    EXPECT_THROW(std::rethrow_exception(over.get().error), Cancelled);
  });
}

TEST(Rpc, F6_MessagesHaveALimit) {
  RpcServer server({.most_message_bytes = 1000}, {{"echo", kEcho}});
  RpcClient client({.address = server.address()});
  EXPECT_THROW(client.call("echo", Payload(std::string(2000, 'x'))), Error);
  EXPECT_EQ(client.call("echo", Payload("x")).text(), "x");
}

TEST(Rpc, F1_BeyondLoopbackOnlyWhereItIsAllowed) {
  EXPECT_THROW(RpcServer({.address = "0.0.0.0:0"}, {}), InvalidArgument);
  EXPECT_THROW(RpcClient({.address = "192.0.2.1:80"}), InvalidArgument);
  RpcServer open({.address = "0.0.0.0:0", .security = {.allow_insecure = true}}, {{"echo", kEcho}});
  RpcClient client({.address = "127.0.0.1:" + std::to_string(open.port())});
  EXPECT_EQ(client.call("echo", Payload("x")).text(), "x");
}

TEST(Rpc, APortIsOneServers) {
  const RpcServer server({}, {});
  const std::string text = error_text<Error>([&] { RpcServer({.address = server.address()}, {}); });
  EXPECT_NE(text.find(server.address()), std::string::npos) << text;
}

TEST(Rpc, F3_OnlyWhoKnowsTheTokenIsHeard) {
  bool heard = false;
  const Secret token("a token that nobody can guess");
  RpcServer server({.security = {.job = "job", .token = token}},
                   {{"set", [&](RpcRequest, RpcReply reply) {
                       heard = true;
                       reply.send(Payload());
                     }}});
  for (const RpcSecurity& stranger :
       {RpcSecurity{.job = "job"},
        RpcSecurity{.job = "job", .token = Secret("another of that length ....")},
        RpcSecurity{.job = "another", .token = token}}) {
    RpcClient client({.address = server.address(), .security = stranger});
    const std::string text = error_text<Unauthenticated>([&] { client.call("set", Payload()); });
    EXPECT_EQ(text.find("nobody can guess"), std::string::npos) << text;
  }
  EXPECT_FALSE(heard);
  RpcClient client({.address = server.address(), .security = {.job = "job", .token = token}});
  client.call("set", Payload());
  EXPECT_TRUE(heard);
}

// F8: who sends no gRPC, or nothing at all, disturbs nobody.
TEST(Rpc, F8_GarbageAtThePortIsNobodysProblem) {
  RpcServer server({}, {{"echo", kEcho}});
  RpcClient client({.address = server.address()});
  std::vector<int> sockets;
  for (int i = 0; i < 50; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(server.port()));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    const std::string garbage(static_cast<std::size_t>(i) * 100, static_cast<char>(i * 37));
    ASSERT_GE(::send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
    sockets.push_back(fd);
    EXPECT_EQ(client.call("echo", Payload("still there")).text(), "still there");
  }
  for (const int fd : sockets) ::close(fd);
  EXPECT_EQ(client.call("echo", Payload("still there")).text(), "still there");
}

// More than a socket takes: gRPC ends such a call when its bytes are written, which is never.
Payload large_payload() {
  const auto rows = std::make_shared<const std::vector<std::byte>>(32 << 20, std::byte{7});
  Payload out;
  out.append({.bytes = *rows, .owner = rows});
  return out;
}

TEST(Rpc, CallsToAServerThatStandsStillEndInTime) {
  RpcServer server({}, {{"echo", kEcho}});
  StalledLink link(server.port());
  RpcClient client(
      {.address = link.address(), .server_name = "the store", .most_silence = hours(1)});
  EXPECT_EQ(client.call("echo", Payload("hello")).text(), "hello");
  link.stall();
  run_with_deadline(seconds(60), [&] {
    for (int i = 0; i < 2; ++i) {
      const std::string text = error_text<DeadlineExceeded>(
          [&] { client.call("echo", large_payload(), {.timeout = milliseconds(300)}); });
      for (const char* part : {"the store (127.0.0.1:", "\"echo\"", " s)"}) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
      }
    }
  });
  link.cut();
  EXPECT_TRUE(testing::comes_true([&] {
    try {
      return client.call("echo", Payload("hello")).text() == "hello";
    } catch (const Unavailable&) {  // the old connection's end
      return false;
    }
  }));
}

TEST(Rpc, CallsToAServerThatStandsStillAreCancelled) {
  RpcServer server({}, {{"echo", kEcho}});
  StalledLink link(server.port());
  RpcClient client({.address = link.address(), .most_silence = hours(1)});
  EXPECT_EQ(client.call("echo", Payload("hello")).text(), "hello");
  link.stall();
  std::promise<std::exception_ptr> told;
  client.start("echo", large_payload(), {.timeout = hours(1)},
               [&told](RpcResult result) { told.set_value(result.error); });
  client.cancel();
  auto error = told.get_future();
  ASSERT_EQ(error.wait_for(seconds(60)), std::future_status::ready);
  testing::expect_error<Cancelled>({"\"echo\""}, [&] { std::rethrow_exception(error.get()); });
  link.cut();  // else the client's end waits until the connection is given up
}

// TCP_USER_TIMEOUT: nobody waits for such a server forever.
TEST(Rpc, TheEndOfAClientDoesNotWaitForAServerThatStandsStill) {
  RpcServer server({}, {{"echo", kEcho}});
  StalledLink link(server.port());
  run_with_deadline(seconds(60), [&] {
    RpcClient client({.address = link.address(), .most_silence = seconds(1)});
    EXPECT_EQ(client.call("echo", Payload("hello")).text(), "hello");
    link.stall();
    client.start("echo", large_payload(), {.timeout = hours(1)}, [](RpcResult) {});
  });
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// Half of a greeting each, all at once; then all are reset, and again.
TEST(Rpc, F8_ManyHalfOpenConnectionsAndResetsDisturbNobody) {
  RpcServer server({}, {{"echo", kEcho}});
  RpcClient client({.address = server.address()});
  client.call("echo", Payload("warm"));
  // A sanitizer keeps what was freed.
  constexpr int64_t kMost = int64_t{COHORT_UNDER_SANITIZER == 0 ? 64 : 768} << 20;
  const int64_t before = resident_bytes();
  for (int round = 0; round < 3; ++round) {
    std::vector<int> sockets;
    for (int i = 0; i < 300; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      ASSERT_GE(fd, 0);
      sockets.push_back(fd);
      sockaddr_in at{};
      at.sin_family = AF_INET;
      at.sin_port = htons(static_cast<uint16_t>(server.port()));
      at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
      ASSERT_EQ(::send(fd, "PRI * HTTP/2", 12, MSG_NOSIGNAL), 12);
      if (i % 50 == 0) {
        EXPECT_EQ(client.call("echo", Payload("here")).text(), "here");
      }
    }
    EXPECT_LT(resident_bytes() - before, kMost);
    const linger now{.l_onoff = 1, .l_linger = 0};
    for (const int fd : sockets) {
      ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);  // close() sends a reset
      ::close(fd);
    }
    EXPECT_EQ(client.call("echo", Payload("here")).text(), "here");
  }
  EXPECT_LT(resident_bytes() - before, kMost);
}

// F8: one that speaks HTTP/2, and then never asks for anything.
TEST(Rpc, F8_WhoAsksForNothingIsCutOff) {
  RpcServer server({.idle_milliseconds = 50}, {{"echo", kEcho}});
  RpcClient client({.address = server.address()});
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(server.port()));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  const std::string preface = std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") +
                              std::string("\0\0\0\4\0\0\0\0\0", 9);  // no settings
  ASSERT_EQ(::send(fd, preface.data(), preface.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(preface.size()));
  run_with_deadline(seconds(60), [&] {
    std::array<char, 256> bytes;
    while (::recv(fd, bytes.data(), bytes.size(), 0) > 0) {
    }
    // A client of the job's connects anew.
    for (int i = 0; i < 3; ++i) EXPECT_EQ(client.call("echo", Payload("here")).text(), "here");
  });
  ::close(fd);
}

}  // namespace
}  // namespace cohort::internal::rpc
