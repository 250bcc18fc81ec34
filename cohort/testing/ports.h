// SPDX-License-Identifier: Apache-2.0
//
// Ports for servers and programs that a test starts:
//
//   for (const int port : free_ports(3)) addresses.push_back(str_cat("localhost:", port));
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/base/reserved_ports.h"

namespace cohort::testing {

struct BoundSocket {
  int descriptor = -1;  ///< Of TCP; the caller listens on it, and closes it.
  int port = 0;
};
/// On a port of the loopback that nobody else has.
inline BoundSocket bind_free_port() {
  BoundSocket bound{.descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* const generic = reinterpret_cast<sockaddr*>(&at);
  EXPECT_EQ(::bind(bound.descriptor, generic, size), 0);
  EXPECT_EQ(::getsockname(bound.descriptor, generic, &size), 0);
  bound.port = ntohs(at.sin_port);
  return bound;
}

/// Ports for programs that the test starts, all different; nobody else's until the test program
/// ends.
inline std::vector<int> free_ports(int count) {
  static internal::base::Mutex mutex;
  static std::vector<internal::base::ReservedPorts> kept;
  const internal::base::MutexLock lock(mutex);
  return kept.emplace_back(static_cast<std::size_t>(count)).all();
}

}  // namespace cohort::testing
