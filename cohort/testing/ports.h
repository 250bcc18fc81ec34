// SPDX-License-Identifier: Apache-2.0
//
// Ports for programs that a test starts:
//
//   for (const int port : free_ports(3)) addresses.push_back(str_cat("localhost:", port));
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

namespace cohort::testing {

/// Ports of the loopback that were free a moment ago, all different.
inline std::vector<int> free_ports(int count) {
  std::vector<int> held;
  std::vector<int> ports;
  for (int i = 0; i < count; ++i) {
    held.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    auto* const generic = reinterpret_cast<sockaddr*>(&at);
    EXPECT_EQ(::bind(held.back(), generic, size), 0);
    EXPECT_EQ(::getsockname(held.back(), generic, &size), 0);
    ports.push_back(ntohs(at.sin_port));
  }
  for (const int fd : held) ::close(fd);
  return ports;
}

}  // namespace cohort::testing
