// SPDX-License-Identifier: Apache-2.0
//
// How ranks meet: over which addresses, by which certificates, and who does not.
#include "cohort/collectives/transports/tcp/mesh.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/collectives/test_job.h"
#include "cohort/rpc/errors.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/ports.h"

namespace cohort::internal::collectives {
namespace {

using testing::expect_error;
using testing::run_with_deadline;
constexpr std::chrono::seconds kMeetsWithin{60};

MeshOptions meeting_of(int rank, const std::vector<std::string>& addresses, Socket listener) {
  return {.rank = rank,
          .addresses = addresses,
          .timeout = std::chrono::seconds(30),
          .listener = std::move(listener)};
}

/// Ranks that meet with options of their own.
std::vector<std::exception_ptr> errors_of_meeting(
    int size, const std::function<void(int rank, MeshOptions& options)>& change) {
  std::vector<std::string> addresses(static_cast<std::size_t>(size));
  std::vector<Socket> listeners;
  for (std::string& address : addresses) listeners.push_back(listen_on_free_port(&address));
  std::vector<std::exception_ptr> errors(addresses.size());
  std::vector<std::jthread> threads;
  for (int r = 0; r < size; ++r) {
    const auto at = static_cast<std::size_t>(r);
    threads.emplace_back([&, r, at] {
      MeshOptions options = meeting_of(r, addresses, std::move(listeners[at]));
      options.agreement = "the same";
      change(r, options);
      try {
        meet_over_tcp(std::move(options));
      } catch (...) {
        errors[at] = std::current_exception();
      }
    });
  }
  threads.clear();
  return errors;
}

TEST(Mesh, AnotherJobIsRefusedOnBothSidesNamingBoth) {
  const auto errors = errors_of_meeting(2, [](int rank, MeshOptions& options) {
    if (rank == 1) options.agreement = "something else";
  });
  for (const auto& error : errors) {
    expect_error<FailedPrecondition>(
        {"rank 0 (127.0.0.1:", "2 ranks, the same", "rank 1 (127.0.0.1:", "something else"}, [&] {
          if (error) std::rethrow_exception(error);
        });
  }
}

TEST(Mesh, AnotherNumberOfRanksIsRefused) {
  const auto errors = errors_of_meeting(2, [](int rank, MeshOptions& options) {
    if (rank == 1) options.addresses.push_back("127.0.0.1:1");
  });
  for (const auto& error : errors) {
    expect_error<FailedPrecondition>({": 2 ranks", ": 3 ranks"}, [&] {
      if (error) std::rethrow_exception(error);
    });
  }
}

TEST(Mesh, WhoDoesNotComeIsNamedWithTheReason) {
  std::string own, other;
  Socket listener = listen_on_free_port(&own);
  other = str_cat("127.0.0.1:", testing::free_ports(1)[0]);  // where nobody listens
  MeshOptions options = meeting_of(1, {other, own}, std::move(listener));
  options.timeout = std::chrono::milliseconds(80);
  expect_error<DeadlineExceeded>({"all 2 workers", "rank 0 (" + other + ")", "refused"},
                                 [&] { meet_over_tcp(std::move(options)); });
  options = meeting_of(0, {own, other}, listen_on_free_port(&own));
  options.timeout = std::chrono::milliseconds(80);
  expect_error<DeadlineExceeded>({"rank 1 (" + other + ")"},
                                 [&] { meet_over_tcp(std::move(options)); });
}

TEST(Mesh, AddressesBeyondLoopbackNeedTheirOption) {
  expect_error<InvalidArgument>(
      {"rank 1 (192.0.2.7:2222)", "COHORT_TLS_CERTIFICATE", "allow_insecure"}, [] {
        meet_over_tcp({.rank = 0, .addresses = {"127.0.0.1:2222", "192.0.2.7:2222"}});
      });
}

/// Two ranks that do not come together, each within its deadline; what the caller says is wrong.
void expect_no_meeting(const rpc::TlsContext& first, const rpc::TlsContext& second,
                       testing::Words words) {
  const auto errors = errors_of_meeting(2, [&](int rank, MeshOptions& options) {
    options.tls = rank == 0 ? first : second;
    options.timeout = std::chrono::milliseconds(1500);
  });
  expect_error<DeadlineExceeded>({"rank 1 (127.0.0.1:"}, [&] {
    if (errors[0]) std::rethrow_exception(errors[0]);
  });
  // By its deadline, or told before by several tries: see A8_AWrongCertificateIsNamed.
  expect_error<Error>(words, [&] {
    try {
      if (errors[1]) std::rethrow_exception(errors[1]);
    } catch (const DeadlineExceeded&) {
      throw;
    } catch (const rpc::Unauthenticated&) {
      throw;
    } catch (...) {
      FAIL() << "another error";
    }
  });
}

/// Rank 1 is told at once why it is refused, and rank 0 after five seconds who has not come.
void expect_refusal(const rpc::TlsContext& first, const rpc::TlsContext& second) {
  std::string addresses[2];
  Socket listeners[2] = {listen_on_free_port(&addresses[0]), listen_on_free_port(&addresses[1])};
  const auto meet = [&](int rank, const rpc::TlsContext& tls, std::chrono::milliseconds timeout) {
    MeshOptions options = meeting_of(rank, {addresses[0], addresses[1]},
                                     std::move(listeners[static_cast<std::size_t>(rank)]));
    options.tls = tls;
    options.timeout = timeout;
    meet_over_tcp(std::move(options));
  };
  std::jthread waits([&] {
    expect_error<DeadlineExceeded>({"rank 1 (127.0.0.1:"},
                                   [&] { meet(0, first, std::chrono::seconds(5)); });
  });
  expect_error<rpc::Unauthenticated>(
      {"rank 0 (127.0.0.1:", "belong to one job", "TLS: ", "COHORT_TLS_AUTHORITY"},
      [&] { meet(1, second, std::chrono::minutes(5)); });
}

// The caller is told long before the deadline, whoever of the two does not believe the other.
TEST(Mesh, A8_AWrongCertificateIsNamed) {
  const rpc::JobAuthority authority("test");
  const rpc::TlsContext right = tls_for(authority, "127.0.0.1");
  const rpc::TlsContext stranger = tls_for(rpc::JobAuthority("theirs"), "127.0.0.1");
  const rpc::TlsContext elsewhere = tls_for(authority, "127.0.0.2");
  const std::pair<rpc::TlsContext, rpc::TlsContext> cases[] = {
      {right, stranger}, {stranger, right}, {elsewhere, right}};
  run_with_deadline(kMeetsWithin, [&] {
    std::vector<std::jthread> meetings;  // at once, for each lasts as long
    for (const auto& each : cases) {
      meetings.emplace_back([&each] { expect_refusal(each.first, each.second); });
    }
  });
}

TEST(Mesh, F2_WorkersOfAnotherAuthorityDoNotMeet) {
  const rpc::TlsContext theirs = tls_for(rpc::JobAuthority("theirs"), "127.0.0.1");
  expect_no_meeting(tls_of(Carrier::kTls), theirs,
                    {"rank 0 (127.0.0.1:", "TLS: certificate verify failed"});
}

TEST(Mesh, F2_AWorkerWithoutTlsDoesNotMeetOneWithIt) {
  expect_no_meeting(tls_of(Carrier::kTls), {}, {"rank 0 (127.0.0.1:"});
  expect_no_meeting({}, tls_of(Carrier::kTls), {"rank 0 (127.0.0.1:"});
}

// One host of the job cannot be another one.
TEST(Mesh, F2_ACertificateOfAnotherHostIsNoRanksHere) {
  const rpc::JobAuthority authority("test");
  const rpc::TlsContext here = tls_for(authority, "127.0.0.1");
  const rpc::TlsContext elsewhere = tls_for(authority, "127.0.0.2");
  expect_no_meeting(here, elsewhere, {"rank 0 (127.0.0.1:"});
  expect_no_meeting(elsewhere, here, {"rank 0 (127.0.0.1:", "IP address mismatch"});
}

TEST(Mesh, AddressesHaveAHostAndAPort) {
  for (const char* bad :
       {"", "localhost", ":22", "host:", "host:0", "host:70000", "http://a:1", "a b:1", "::1:22"}) {
    expect_error<InvalidArgument>({"host:port", bad}, [&] { parse_address("[cluster] ", bad); });
  }
  EXPECT_EQ(parse_address("", "[::1]:22").host, "::1");
  EXPECT_EQ(parse_address("", "worker-0.ns.svc:2222").port, 2222);
}

TEST(Mesh, WhoListensOnAllInterfacesIsReachedByBothProtocols) {
  const std::string port = str_cat(":", testing::free_ports(1)[0]);
  const std::string address = "127.0.0.1" + port;
  const Deadline soon = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const Socket listener = listen_at(address, /*any_interface=*/true);
  for (const std::string host : {"127.0.0.1", "[::1]"}) {
    std::string why;
    const bool is_reached = static_cast<bool>(connect_to(host + port, soon, &why));
    if (!is_reached && why == error_text(EADDRNOTAVAIL)) continue;  // a machine without IPv6
    EXPECT_TRUE(is_reached) << host << ": " << why;
  }
}

// What a rank gets, now and then, that calls a port of the system's choice before its peer listens.
TEST(Mesh, AConnectionWithItselfIsNoPeer) {
  Socket listener;
  std::string address;
  listener = listen_on_free_port(&address);
  std::string why;
  const Socket other =
      connect_to(address, std::chrono::steady_clock::now() + std::chrono::seconds(10), &why);
  ASSERT_TRUE(static_cast<bool>(other)) << why;
  EXPECT_FALSE(is_connected_to_itself(other));

  const Socket own(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* generic = reinterpret_cast<sockaddr*>(&at);
  ASSERT_EQ(::bind(own.fd(), generic, size), 0);
  ASSERT_EQ(::getsockname(own.fd(), generic, &size), 0);
  EXPECT_FALSE(is_connected_to_itself(own));
  ASSERT_EQ(::connect(own.fd(), generic, size), 0);
  EXPECT_TRUE(is_connected_to_itself(own));
}

TEST(Mesh, AnAddressThatIsTakenIsNamed) {
  std::string address;
  const Socket listener = listen_on_free_port(&address);
  expect_error<Error>({address, "started twice"}, [&] { listen_at(address, false); });
}

// Strangers who say nothing, or something else, hold nobody up.
TEST(Mesh, StrangersAreIgnored) {
  run_with_deadline(kMeetsWithin, [] {
    std::vector<std::string> addresses(2);
    Socket first = listen_on_free_port(&addresses[0]);
    Socket second = listen_on_free_port(&addresses[1]);
    std::string why;
    std::vector<Socket> strangers;
    for (int i = 0; i < 20; ++i) {
      strangers.push_back(connect_to(addresses[0], Deadline::max(), &why));
      EXPECT_GE(strangers.back().fd(), 0) << why;
      const ssize_t written =
          i % 2 == 0 ? ::write(strangers.back().fd(), "GET / HTTP/1.1\r\n\r\n1234", 22) : 1;
      EXPECT_GT(written, 0);
    }
    std::jthread other([&, listener = std::move(second)]() mutable {
      EXPECT_EQ(meet_over_tcp(meeting_of(1, addresses, std::move(listener))).size(), 2U);
    });
    EXPECT_EQ(meet_over_tcp(meeting_of(0, addresses, std::move(first))).size(), 2U);
  });
}

}  // namespace
}  // namespace cohort::internal::collectives
