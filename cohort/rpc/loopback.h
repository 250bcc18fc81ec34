// SPDX-License-Identifier: Apache-2.0
//
// Addresses that never leave their machine.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

namespace cohort::internal::rpc {

/// Whether it is 127.x.y.z or ::1; false for what is no address of the internet.
inline bool is_loopback_address(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  if (address->sa_family != AF_INET6) return false;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr) != 0;
}

}  // namespace cohort::internal::rpc
