// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "cohort/base/strings.h"
#include "cohort/coordinator/status/status_board.h"
#include "cohort/coordinator/status/status_page.h"
#include "cohort/rpc/wire.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using internal::coordinator::StatusBoard;
using internal::coordinator::StatusPage;
using internal::coordinator::TaskReport;
using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

const StatusBoard::Time kBegin = StatusBoard::Time(seconds(1000));

json at(const StatusBoard& board, milliseconds behind) {
  return json::parse(board.json(kBegin + behind));
}

TEST(StatusBoard, FollowsATask) {
  StatusBoard board;
  board.add_task("worker 0", "10.0.0.1:7");
  EXPECT_EQ(at(board, seconds(0))["tasks"][0]["state"], "awaited");
  EXPECT_FALSE(at(board, seconds(0))["tasks"][0].contains("heard_s"));
  board.found("worker 0", 17, kBegin);
  board.heard("worker 0", {.incarnation = 17, .memory_bytes = 123}, kBegin + seconds(2));
  json task = at(board, seconds(5))["tasks"][0];
  EXPECT_EQ(task["state"], "alive");
  EXPECT_EQ(task["address"], "10.0.0.1:7");
  EXPECT_DOUBLE_EQ(task["alive_s"], 5);
  EXPECT_DOUBLE_EQ(task["heard_s"], 3);
  EXPECT_EQ(task["memory_bytes"], 123);
  board.missed("worker 0", StatusBoard::State::kLost, "reset by peer", kBegin + seconds(6));
  board.missed("worker 0", StatusBoard::State::kLost, "again", kBegin + seconds(7));
  EXPECT_EQ(at(board, seconds(8))["tasks"][0]["state"], "lost");
  ASSERT_EQ(at(board, seconds(8))["errors"].size(), 1);
  EXPECT_EQ(at(board, seconds(8))["errors"][0]["text"], "reset by peer");
  EXPECT_DOUBLE_EQ(at(board, seconds(8))["errors"][0]["ago_s"], 2);
  board.heard("worker 0", {.incarnation = 17}, kBegin + seconds(8));
  EXPECT_EQ(at(board, seconds(8))["tasks"][0]["state"], "lost") << "it was on its way";
  board.heard("worker 0", {.incarnation = 17}, kBegin + seconds(8));
  EXPECT_EQ(at(board, seconds(8))["tasks"][0]["state"], "alive");
  board.missed("worker 0", StatusBoard::State::kLost, "reset once more", kBegin + seconds(8));
  // What its former process has still said does not count.
  board.found("worker 0", 18, kBegin + seconds(9));
  board.heard("worker 0", {.incarnation = 17, .memory_bytes = 5}, kBegin + seconds(10));
  task = at(board, seconds(10))["tasks"][0];
  EXPECT_EQ(task["state"], "alive");
  EXPECT_EQ(task["starts"], 2);
  EXPECT_DOUBLE_EQ(task["alive_s"], 1);
  EXPECT_EQ(task["memory_bytes"], 0);
}

TEST(StatusBoard, CountsWhatEndedInTheLastSeconds) {
  StatusBoard board;
  board.add_task("worker 0", "a:1");
  board.add_task("ps 0", "a:2");
  board.found("ps 0", 1, kBegin);
  for (int i = 1; i <= 100; ++i) {  // ten a second, of which one in ten fails
    const auto now = kBegin + milliseconds(100 * i);
    board.ended("worker 0", {.done = 9, .failed = 1}, now);
    board.heard("ps 0",
                {.incarnation = 1,
                 .rows_read = static_cast<uint64_t>(500 * i),
                 .rows_changed = static_cast<uint64_t>(20 * i)},
                now);
  }
  board.ended("worker 0", {.again = 3}, kBegin + seconds(10));
  const json all = at(board, seconds(10));
  EXPECT_EQ(all["functions"]["done"], 900);
  EXPECT_EQ(all["functions"]["failed"], 100);
  EXPECT_EQ(all["functions"]["again"], 3);
  EXPECT_EQ(all["tasks"][0]["done"], 900);
  EXPECT_NEAR(all["functions"]["per_second"], 90, 2);
  EXPECT_NEAR(all["rows"]["read_per_second"], 5000, 100);
  EXPECT_NEAR(all["tasks"][1]["rows_changed_per_second"], 200, 5);
  EXPECT_DOUBLE_EQ(at(board, seconds(30))["functions"]["per_second"], 0) << "long ago";
  EXPECT_DOUBLE_EQ(at(board, seconds(30))["rows"]["read_per_second"], 0);
}

TEST(StatusBoard, AsksTheQueueWhenSomebodyLooks) {
  StatusBoard board;
  board.add_task("worker 1", "a:1");
  board.set_queue([] {
    return StatusBoard::Queue{.scheduled = 9, .waiting = 4, .running = {{"worker 1", 2}}};
  });
  const json all = at(board, seconds(0));
  EXPECT_EQ(all["functions"]["scheduled"], 9);
  EXPECT_EQ(all["functions"]["queued"], 4);
  EXPECT_EQ(all["functions"]["running"], 2);
  EXPECT_EQ(all["tasks"][0]["running"], 2);
  board.set_queue({});
  EXPECT_EQ(at(board, seconds(0))["functions"]["queued"], 0);
}

TEST(StatusBoard, KeepsTheLastErrorsAndCutsLongOnes) {
  StatusBoard board;
  for (int i = 0; i < 40; ++i) board.note_error("worker 0", str_cat("error ", i), kBegin);
  board.note_error("worker 0", "\xff" + std::string(5000, 'x'), kBegin);
  const json errors = at(board, seconds(0))["errors"];
  ASSERT_EQ(errors.size(), StatusBoard::kKeptErrors);
  EXPECT_LT(errors[0]["text"].get<std::string>().size(), 1100) << "and is JSON, as the parser said";
  EXPECT_EQ(errors[1]["text"], "error 39");
}

TEST(TaskReport, TravelsAndIsNotBelievedBlindly) {
  TaskReport report{.incarnation = 1, .rows_read = 2, .rows_changed = 3, .memory_bytes = 4};
  report.groups.push_back({.group = 5, .is_primary = true, .epoch = 6, .backups = 7, .lag = 8});
  internal::rpc::MessageWriter out;
  write_report(out, report);
  internal::rpc::MessageReader in("[test] ", out.str());
  const TaskReport read = internal::coordinator::read_report(in);
  in.end();
  EXPECT_EQ(read.rows_changed, 3);
  ASSERT_EQ(read.groups.size(), 1);
  EXPECT_TRUE(read.groups[0].is_primary);
  EXPECT_EQ(read.groups[0].lag, 8);
  for (std::size_t size = 0; size < out.str().size(); ++size) {
    const std::string part = out.str().substr(0, size);
    internal::rpc::MessageReader cut("[test] ", part);
    EXPECT_THROW(internal::coordinator::read_report(cut), DataLoss) << size;
  }
}

TEST(TaskReport, KnowsItsMemory) {
  EXPECT_GT(internal::coordinator::resident_bytes(), 1 << 20);
  EXPECT_LT(internal::coordinator::resident_bytes(), uint64_t{1} << 40);
}

// What a server answers to these bytes, to the end of the connection.
std::string told_once(const std::string& url, const std::string& bytes) {
  const int port = std::stoi(url.substr(url.rfind(':') + 1));
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  EXPECT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  std::string out;
  std::array<char, 4096> part{};
  for (ssize_t got = 0; (got = ::recv(fd, part.data(), part.size(), 0)) > 0;) {
    out.append(part.data(), static_cast<std::size_t>(got));
  }
  ::close(fd);
  return out;
}
// The same; this process may have had no processor for so long that it was taken for slow.
std::string told(const std::string& url, const std::string& bytes) {
  std::string out = told_once(url, bytes);
  for (int i = 0; i < 9 && out.empty(); ++i) out = told_once(url, bytes);
  return out;
}

std::string get(const std::string& path, const std::string& host = "localhost:1",
                const std::string& more = "") {
  return str_cat("GET ", path, " HTTP/1.1\r\nHost: ", host, "\r\n", more, "\r\n");
}

std::string one_task_json() {
  StatusBoard board;
  board.add_task("worker 0", "<i>\"&'");
  board.note_error("worker 0", "<script>alert('&')</script>");
  return board.json();
}

TEST(StatusPage, ShowsAllAndEscapesIt) {
  const StatusPage page({}, one_task_json);
  const std::string html = told(page.url(), get("/"));
  EXPECT_EQ(html.rfind("HTTP/1.1 200 OK\r\n", 0), 0) << html;
  EXPECT_NE(html.find("Content-Security-Policy: default-src 'none';"), std::string::npos);
  EXPECT_NE(html.find("<td>&lt;i&gt;&quot;&amp;&#39;</td>"), std::string::npos) << html;
  EXPECT_NE(html.find("&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;"), std::string::npos);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("<i>"), std::string::npos);
  const std::string data = told(page.url(), get("/status.json?x=1"));
  const json all = json::parse(data.substr(data.find("\r\n\r\n") + 4));
  EXPECT_EQ(all["errors"][0]["text"], "<script>alert('&')</script>");
  const std::string head = told(page.url(), "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(head.rfind("HTTP/1.1 200", 0), 0);
  EXPECT_EQ(head.substr(head.find("\r\n\r\n")), "\r\n\r\n");
}

TEST(StatusPage, RefusesWhatIsNotMeant) {
  const StatusPage page({}, one_task_json);
  const auto answer = [&](const std::string& bytes) {
    return told(page.url(), bytes).substr(9, 3);
  };
  EXPECT_EQ(answer(get("/other")), "404");
  EXPECT_EQ(answer("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n"), "405");
  EXPECT_EQ(answer("what\r\n\r\n"), "400");
  EXPECT_EQ(answer("GET / SMTP/1.1\r\n\r\n"), "400");
  EXPECT_EQ(answer(get("/", "evil.example")), "403") << "a name that stands for this machine now";
  EXPECT_EQ(answer("GET / HTTP/1.1\r\n\r\n"), "403");
  EXPECT_EQ(answer(get("/", "127.0.0.1")), "200");
  EXPECT_EQ(answer(get("/", "[::1]:80")), "200");
  EXPECT_EQ(answer("GET / HTTP/1.1\r\n" + std::string(20000, 'x')), "431");
}

TEST(StatusPage, DoesNotWaitForWhoIsSlow) {
  const StatusPage page({}, one_task_json);
  EXPECT_EQ(told_once(page.url(), "GET / HT"), "") << "cut off, and the next one is answered";
  EXPECT_EQ(told(page.url(), get("/")).substr(9, 3), "200");
}

TEST(StatusPage, AsksForItsToken) {
  const StatusPage page({.token = internal::rpc::Secret("sixteen-letters!")}, one_task_json);
  const auto answer = [&](const std::string& header) {
    return told(page.url(), get("/", "localhost", header));
  };
  EXPECT_NE(answer("").find("WWW-Authenticate: Basic"), std::string::npos);
  EXPECT_EQ(answer("").find("worker"), std::string::npos);
  // any:sixteen-letters! and any:sixteen-letters? and sixteen-letters! without a user.
  EXPECT_EQ(answer("Authorization: Basic YW55OnNpeHRlZW4tbGV0dGVycyE=\r\n").substr(9, 3), "200");
  EXPECT_EQ(answer("authorization: basic YW55OnNpeHRlZW4tbGV0dGVycz8=\r\n").substr(9, 3), "401");
  EXPECT_EQ(answer("Authorization: Basic c2l4dGVlbi1sZXR0ZXJzIQ==\r\n").substr(9, 3), "401");
  EXPECT_EQ(answer("Authorization: Bearer sixteen-letters!\r\n").substr(9, 3), "401");
}

TEST(StatusPage, IsOnThisMachineUnlessItIsGuarded) {
  const internal::rpc::Secret token("sixteen-letters!");
  EXPECT_THROW(StatusPage({.host = "0.0.0.0"}, one_task_json), InvalidArgument);
  EXPECT_THROW(StatusPage({.host = "0.0.0.0", .token = token}, one_task_json), InvalidArgument);
  EXPECT_THROW(StatusPage({.host = "0.0.0.0", .allow_insecure = true}, one_task_json),
               InvalidArgument);
  EXPECT_THROW(StatusPage({.token = internal::rpc::Secret("short")}, one_task_json),
               InvalidArgument);
  const StatusPage open({.host = "0.0.0.0", .token = token, .allow_insecure = true}, one_task_json);
  EXPECT_EQ(told(open.url(), get("/", "any.example")).substr(9, 3), "401");
  const StatusPage page({}, one_task_json);
  const int port = std::stoi(page.url().substr(page.url().rfind(':') + 1));
  EXPECT_THROW(StatusPage({.port = port}, one_task_json), Error) << "it is taken";
}

}  // namespace
}  // namespace cohort
