// SPDX-License-Identifier: Apache-2.0
//
// TLS over sockets of one's own, by the certificates that a job makes itself, or by its secret.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <optional>

#include "cohort/rpc/job_authority.h"
#include "cohort/rpc/tls.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/temporary_folder.h"

namespace cohort::internal::rpc {
namespace {

std::string write_file(const std::string& name, const std::string& text) {
  static const cohort::testing::TemporaryFolder folder;
  const std::string path = folder / name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// A certificate of an authority, in files as a task finds it.
RpcSecurity files_of(const JobAuthority& authority, const IssuedCertificate& issued) {
  static int number = 0;
  const std::string name = std::to_string(++number);
  return {.certificate = write_file(name + ".pem", issued.certificate),
          .key = write_file(name + ".key", issued.key),
          .authority = write_file(name + ".ca", authority.certificate())};
}

// Two ends of one connection.
struct Ends {
  std::array<int, 2> fds = {};
  Ends() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
    const int small = 8192;
    for (const int fd : fds) ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  }
  ~Ends() {
    for (const int fd : fds) ::close(fd);
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;
};

struct Side {
  TlsSession session;
  std::string to_send = {};
  std::string got = {};
  std::string why = {};
  std::size_t sent = 0;

  void go_on() {
    if (!why.empty()) return;
    // In three pieces, as a header and its message.
    const std::size_t left = to_send.size() - sent;
    char* at = to_send.data() + sent;
    const std::array<iovec, 3> parts = {
        {{at, std::min<std::size_t>(left, 5)},
         {at + std::min<std::size_t>(left, 5), left > 5 ? std::min<std::size_t>(left - 5, 90) : 0},
         {at + std::min<std::size_t>(left, 95), left > 95 ? left - 95 : 0}}};
    const ssize_t now = session.send(parts, &why);
    if (now > 0) sent += static_cast<std::size_t>(now);
    if (now < 0) return;
    std::array<std::byte, 4000> bytes;
    const ssize_t here = session.receive(bytes.data(), bytes.size(), &why);
    if (here > 0) got.append(reinterpret_cast<const char*>(bytes.data()), std::size_t(here));
  }
};

// What each of the two says has reached the other, or why not.
struct Talk {
  Side client;
  Side server;
  Talk(const Ends& ends, const TlsContext& client_context, const TlsContext& server_context,
       const std::string& host, std::size_t bytes = 100)
      : client{.session{client_context, TlsSide::kClient, ends.fds[0], host}},
        server{.session{server_context, TlsSide::kServer, ends.fds[1]}} {
    for (std::size_t i = 0; i < bytes; ++i) {
      client.to_send += static_cast<char>(i * 7);
      server.to_send += static_cast<char>(i * 11 + 3);
    }
  }
  bool is_over() const {
    return client.got.size() == server.to_send.size() && server.got.size() == client.to_send.size();
  }
  void go_on() {
    for (int i = 0; i < 100'000 && !is_over(); ++i) {
      client.go_on();
      server.go_on();
      if (!client.why.empty() && !server.why.empty()) return;
    }
  }
  bool works() {
    go_on();
    return client.got == server.to_send && server.got == client.to_send;
  }
  /// Nothing that either of them says reaches the other.
  void is_refused() {
    go_on();
    EXPECT_EQ(server.got, "") << "a caller that was not proved was heard";
    EXPECT_FALSE(server.why.empty());
  }
};

struct TlsSessions : ::testing::Test {
  const JobAuthority ours{"ours"};
  const TlsContext node1 = TlsContext::of_certificates(files_of(ours, ours.issue("node1")));
  const TlsContext address = TlsContext::of_certificates(files_of(ours, ours.issue("10.0.0.7")));
  const Ends ends;
};

TEST_F(TlsSessions, CarryAnyNumberOfBytesBothWays) {
  for (const std::size_t bytes : {1U, 95U, 16'384U, 3'000'001U}) {
    const Ends own;
    Talk talk(own, address, node1, "node1", bytes);
    EXPECT_TRUE(talk.works()) << bytes << ": " << talk.client.why << "; " << talk.server.why;
  }
}

// One key is for a limited number of bytes, and a job may run for months.
TEST_F(TlsSessions, ChangeTheirKeysOnTheWay) {
  Talk talk(ends, address, node1, "node1", 2'000'000);
  talk.client.session.change_key_after(3);
  talk.server.session.change_key_after(5);
  EXPECT_TRUE(talk.works()) << talk.client.why << "; " << talk.server.why;
  EXPECT_GT(talk.client.session.keys(), 20U);
  EXPECT_GT(talk.server.session.keys(), 10U);
}

TEST_F(TlsSessions, KnowWhomTheOtherOnesCertificateIsFor) {
  Talk talk(ends, address, node1, "node1");
  ASSERT_TRUE(talk.works());
  EXPECT_TRUE(talk.server.session.is_peer_for("10.0.0.7"));
  EXPECT_FALSE(talk.server.session.is_peer_for("node1"));
  EXPECT_TRUE(talk.client.session.is_peer_for("node1"));
}

TEST_F(TlsSessions, F2_AnotherJobsCertificateIsRefused) {
  const JobAuthority theirs("theirs");
  RpcSecurity stranger = files_of(theirs, theirs.issue("node1"));
  Talk(ends, TlsContext::of_certificates(stranger), node1, "node1").is_refused();
  const Ends again;
  stranger.authority = files_of(ours, ours.issue("x")).authority;  // it believes us
  Talk(again, TlsContext::of_certificates(stranger), node1, "node1").is_refused();
}

TEST_F(TlsSessions, F2_AHostOfAnotherNameIsRefused) {
  Talk talk(ends, address, node1, "node2");
  talk.is_refused();
  EXPECT_NE(talk.client.why.find("certificate verify failed"), std::string::npos)
      << talk.client.why;
}

TEST_F(TlsSessions, F2_AnExpiredCertificateIsRefused) {
  const TlsContext old =
      TlsContext::of_certificates(files_of(ours, ours.issue("node1", std::chrono::hours(-1))));
  Talk(ends, old, node1, "node1").is_refused();
  const Ends again;
  Talk(again, address, old, "node1").is_refused();
}

TEST_F(TlsSessions, F2_PlaintextIsRefused) {
  TlsSession server(node1, TlsSide::kServer, ends.fds[1]);
  ASSERT_EQ(::write(ends.fds[0], "GET / HTTP/1.1\r\n\r\n", 18), 18);
  std::byte got{};
  std::string why;
  EXPECT_EQ(server.receive(&got, 1, &why), -1);
  EXPECT_NE(why.find("TLS: "), std::string::npos) << why;
}

// A client of OpenSSL's that is told what to do.
struct OwnClient {
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{SSL_CTX_new(TLS_method()),
                                                            &SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl{nullptr, &SSL_free};
  void connect(int fd) {
    ssl.reset(SSL_new(context.get()));
    SSL_set_fd(ssl.get(), fd);
    SSL_set_connect_state(ssl.get());
  }
};

TEST_F(TlsSessions, F2_OlderVersionsAndNoCertificateAreRefused) {
  for (const bool old : {true, false}) {
    const Ends own;
    OwnClient client;
    if (old) SSL_CTX_set_max_proto_version(client.context.get(), TLS1_2_VERSION);
    client.connect(own.fds[0]);
    TlsSession server(node1, TlsSide::kServer, own.fds[1]);
    std::string why;
    for (int i = 0; i < 20 && why.empty(); ++i) {
      SSL_do_handshake(client.ssl.get());
      server.shake_hands(&why);
    }
    EXPECT_NE(why.find("TLS: "), std::string::npos) << why;
  }
}

TEST_F(TlsSessions, F3_ASecretIsProofEnoughAndAnotherOneIsNone) {
  const TlsContext ours_by_secret = TlsContext::of_secret(Secret("sixteen bytes or"), "test");
  Talk talk(ends, ours_by_secret, TlsContext::of_secret(Secret("sixteen bytes or"), "test"),
            "node1", 100'000);
  EXPECT_TRUE(talk.works()) << talk.client.why << "; " << talk.server.why;
  const Ends other;
  Talk(other, TlsContext::of_secret(Secret("another secret!!"), "test"), ours_by_secret, "")
      .is_refused();
  const Ends purpose;
  Talk(purpose, TlsContext::of_secret(Secret("sixteen bytes or"), "else"), ours_by_secret, "")
      .is_refused();
}

// Whoever has some certificate is not one who has the secret.
TEST_F(TlsSessions, F3_ACertificateStandsInForNoSecret) {
  const TlsContext by_secret = TlsContext::of_secret(Secret("sixteen bytes or"), "test");
  Talk client(ends, node1, by_secret, "");
  client.is_refused();
  const Ends again;
  Talk server(again, by_secret, node1, "");
  server.go_on();
  EXPECT_EQ(server.client.got, "");
  EXPECT_EQ(server.server.got, "");
  EXPECT_FALSE(server.client.why.empty());
}

// What would end a program by SIGPIPE.
TEST_F(TlsSessions, SayThatTheOtherOneIsGone) {
  Talk talk(ends, address, node1, "node1");
  ASSERT_TRUE(talk.works());
  ::shutdown(ends.fds[1], SHUT_RDWR);
  std::array<char, 100> bytes = {};
  const std::array<iovec, 1> parts = {{{bytes.data(), bytes.size()}}};
  std::string why;
  EXPECT_EQ(talk.client.session.send(parts, &why), -1);
  EXPECT_EQ(why, "Broken pipe");
  std::byte got{};
  why.clear();
  EXPECT_EQ(talk.client.session.receive(&got, 1, &why), -1);
  EXPECT_EQ(why, "the connection was closed");
}

TEST(TlsContexts, NameAFileThatIsNone) {
  testing::expect_error<InvalidArgument>({"/nowhere/a"}, [] {
    TlsContext::of_certificates(
        {.certificate = "/nowhere/a", .key = "/nowhere/b", .authority = "/nowhere/c"});
  });
}

TEST(JobAuthorities, RefuseWhatIsNoHost) {
  const JobAuthority authority("ours");
  for (const char* bad : {"", "a,DNS:b", "a b"}) {
    EXPECT_THROW(authority.issue(bad), InvalidArgument) << bad;
  }
  EXPECT_NO_THROW(authority.issue("[::1]"));
  EXPECT_NE(authority.issue("a").key, authority.issue("a").key);
}

}  // namespace
}  // namespace cohort::internal::rpc
