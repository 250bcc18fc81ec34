// SPDX-License-Identifier: Apache-2.0
//
// F2: with TLS, who has no certificate of the job's own authority reaches no handler.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "cohort/rpc/client.h"
#include "cohort/rpc/server.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/temporary_folder.h"

namespace cohort::internal::rpc {
namespace {

// An authority, and certificates that it has signed, as a user makes them.
class Authority {
 public:
  explicit Authority(const std::string& name) {
    run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=" +
        name + " -keyout " + folder_ / "ca.key" + " -out " + folder_ / "ca.pem");
  }
  /// `host`: whom the certificate is for.
  RpcSecurity certificate(const std::string& host, const std::string& days = "2") const {
    const std::string at = folder_ / (host + days);
    run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=" + host +
        " -keyout " + at + ".key -out " + at + ".csr");
    run("printf 'subjectAltName=DNS:" + host + "' > " + at + ".ext");
    run("openssl x509 -req -in " + at + ".csr -CA " + folder_ / "ca.pem" + " -CAkey " +
        folder_ / "ca.key" + " -CAcreateserial -days " + days + " -extfile " + at + ".ext -out " +
        at + ".pem");
    return {.certificate = at + ".pem", .key = at + ".key", .authority = folder_ / "ca.pem"};
  }

 private:
  static void run(const std::string& command) {
    ASSERT_EQ(::system((command + " 2>/dev/null").c_str()), 0) << command;
  }
  const cohort::testing::TemporaryFolder folder_;
};

struct Tls : ::testing::Test {
  const Authority ours{"ours"};
  const RpcSecurity localhost = ours.certificate("localhost");
  int calls = 0;
  RpcServer server{{.address = "localhost:0", .security = localhost},
                   {{"count", [this](RpcRequest, RpcReply reply) {
                       ++calls;
                       reply.send(Payload());
                     }}}};
  void is_refused(const RpcSecurity& security) {
    RpcClient client({.address = server.address(), .security = security});
    EXPECT_THROW(client.call("count", Payload(), {.timeout = std::chrono::seconds(5)}), Error);
    EXPECT_EQ(calls, 0);
  }
};

TEST_F(Tls, F2_TasksOfOneAuthorityTalk) {
  RpcClient client({.address = server.address(), .security = localhost});
  client.call("count", Payload());
  EXPECT_EQ(calls, 1);
}

TEST_F(Tls, F2_PlaintextIsRefused) { is_refused({}); }

TEST_F(Tls, F2_AnotherAuthorityIsRefused) {
  const Authority theirs("theirs");
  RpcSecurity stranger = theirs.certificate("localhost");
  is_refused(stranger);
  stranger.authority = localhost.authority;  // it believes us; we do not believe it
  is_refused(stranger);
}

TEST_F(Tls, F2_AnExpiredCertificateIsRefused) { is_refused(ours.certificate("localhost", "-1")); }

TEST(TlsServer, F2_OneWithAnotherNameIsNotBelieved) {
  const Authority ours("names");
  bool called = false;
  RpcServer server({.address = "localhost:0", .security = ours.certificate("elsewhere.test")},
                   {{"call", [&](RpcRequest, RpcReply reply) {
                       called = true;
                       reply.send(Payload());
                     }}});
  RpcClient client({.address = server.address(), .security = ours.certificate("localhost")});
  EXPECT_THROW(client.call("call", Payload(), {.timeout = std::chrono::seconds(5)}), Error);
  EXPECT_FALSE(called);
}

TEST(TlsServer, FilesThatAreNoneAreNamed) {
  const RpcSecurity nowhere{
      .certificate = "/nowhere/a", .key = "/nowhere/b", .authority = "/nowhere/c"};
  testing::expect_error<InvalidArgument>({"/nowhere/"},
                                         [&] { RpcServer({.security = nowhere}, {}); });
}

}  // namespace
}  // namespace cohort::internal::rpc
