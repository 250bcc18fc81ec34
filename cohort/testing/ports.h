// SPDX-License-Identifier: Apache-2.0
//
// Ports for programs that a test starts:
//
//   for (const int port : free_ports(3)) addresses.push_back(str_cat("localhost:", port));
//   const HeldPorts ports(3);   // for servers of this process: nobody takes them meanwhile
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

namespace cohort::testing {

struct BoundSocket {
  int descriptor = -1;  ///< Of TCP; the caller listens on it, and closes it.
  int port = 0;
};
/// On a port of the loopback that nobody else has. Shared: servers may bind it, too, which say
/// SO_REUSEADDR, as those of gRPC do.
inline BoundSocket bind_free_port(bool shared = false) {
  BoundSocket bound{.descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const int on = shared ? 1 : 0;
  EXPECT_EQ(::setsockopt(bound.descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
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

/// Free ports of the loopback, which the system gives to nobody who asks for any port. Servers that
/// are told them can listen on them meanwhile.
class HeldPorts {
 public:
  explicit HeldPorts(int count) {
    for (int i = 0; i < count; ++i) sockets_.push_back(bind_free_port(true));
  }
  ~HeldPorts() {
    for (const BoundSocket& socket : sockets_) ::close(socket.descriptor);
  }
  HeldPorts(const HeldPorts&) = delete;
  HeldPorts& operator=(const HeldPorts&) = delete;

  int operator[](int i) const { return sockets_.at(static_cast<std::size_t>(i)).port; }

 private:
  std::vector<BoundSocket> sockets_;
};

/// Ports of the loopback that were free a moment ago, all different.
inline std::vector<int> free_ports(int count) {
  std::vector<int> held;
  std::vector<int> ports;
  for (int i = 0; i < count; ++i) {
    const BoundSocket bound = bind_free_port();
    held.push_back(bound.descriptor);
    ports.push_back(bound.port);
  }
  for (const int descriptor : held) ::close(descriptor);
  return ports;
}

}  // namespace cohort::testing
