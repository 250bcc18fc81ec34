// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/reserved_ports.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>

#include "cohort/testing/child.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/ports.h"

namespace cohort::internal::base {
namespace {

using testing::expect_error;
using testing::status_of_child;

bool shares_any(const ReservedPorts& a, const ReservedPorts& b) {
  return std::find_first_of(a.all().begin(), a.all().end(), b.all().begin(), b.all().end()) !=
         a.all().end();
}

TEST(ReservedPorts, AreNobodyElses) {
  constexpr std::size_t kMany = 100;
  const ReservedPorts mine(kMany);
  EXPECT_EQ(std::set<int>(mine.all().begin(), mine.all().end()).size(), kMany);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(shares_any(mine, ReservedPorts(kMany))) << "of this process";
  }
  EXPECT_EQ(status_of_child([&] {
              for (int i = 0; i < 20; ++i) {
                if (shares_any(mine, ReservedPorts(kMany))) return 1;
              }
              return 0;
            }),
            0)
      << "of another";
}

// As an outgoing connection, or a server that asks for any port, gets its own.
TEST(ReservedPorts, AreNotGivenToWhomeverAsksForAnyPort) {
  const ReservedPorts ports(2);
  std::vector<int> sockets;
  for (int i = 0; i < 200; ++i) {
    const testing::BoundSocket bound = testing::bind_free_port();
    EXPECT_TRUE(bound.port != ports[0] && bound.port != ports[1]);
    sockets.push_back(bound.descriptor);
  }
  for (const int socket : sockets) ::close(socket);
}

TEST(ReservedPorts, AreThoseWhereNobodyListens) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::optional<ReservedPorts> first(1);
  const int port = (*first)[0];
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(static_cast<uint16_t>(port));
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0) << "it can be listened at";
  ASSERT_EQ(::listen(fd, 1), 0);
  first.reset();
  for (int i = 0; i < 20; ++i) {
    const ReservedPorts others(200);
    EXPECT_EQ(std::count(others.all().begin(), others.all().end(), port), 0);
  }
  ::close(fd);
}

TEST(ReservedPorts, SayWhenThereAreNotSoMany) {
  expect_error<Error>({"100000 free ports"}, [] { ReservedPorts(100'000); });
}

}  // namespace
}  // namespace cohort::internal::base
