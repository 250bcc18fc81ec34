// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/reserved_ports.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <string>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"

namespace cohort::internal::base {
namespace {

constexpr int kLowest = 10'000;
constexpr int kNodePorts = 30'000;  // From here on Kubernetes has services of its nodes.
constexpr int kHighest = 65'535;
constexpr int kRoom = 1'000;

struct Range {
  int first = kLowest;
  int last = kHighest;
};

Range range_of_reserved() {
  int lowest_of_connections = 32'768;  // Linux's default
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> lowest_of_connections;
  const int end = std::min(lowest_of_connections, kNodePorts);
  return end < kLowest + kRoom ? Range{} : Range{.last = end - 1};
}

int new_socket(int family) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0) return fd;
  throw Error(ErrorCode::kResourceExhausted,
              str_cat("expected a socket to reserve a port, got: ", std::strerror(errno)));
}

// A name that one process has at a time, in the abstract namespace, which belongs to the network
// namespace as ports do, and which forgets those who end. None: another process has it. Where there
// are no such names, a socket without one.
std::optional<int> claim(int port) {
  const std::string name = str_cat("cohort-port-", port);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path + 1, name.data(), name.size());
  const int fd = new_socket(AF_UNIX);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&at), size) == 0 || errno != EADDRINUSE) {
    return fd;
  }
  ::close(fd);
  return {};
}

bool is_free(int port) {
  const int fd = new_socket(AF_INET);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_ANY);
  at.sin_port = htons(static_cast<uint16_t>(port));
  const bool is_bound = ::bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
  ::close(fd);
  return is_bound;
}

[[noreturn]] void fail(const Range& range, std::size_t count) {
  throw Error(ErrorCode::kResourceExhausted,
              str_cat("expected ", count, " free ports between ", range.first, " and ", range.last,
                      ", where there are not so many"));
}

}  // namespace

// From a place drawn at random on, so that jobs that start at a time seldom ask for the same.
ReservedPorts::ReservedPorts(std::size_t count) : ReservedPorts() {
  const Range range = range_of_reserved();
  const int size = range.last - range.first + 1;
  if (count > static_cast<std::size_t>(size)) fail(range, count);
  const int start = static_cast<int>(std::random_device{}() % static_cast<unsigned>(size));
  for (int i = 0; i < size && ports_.size() < count; ++i) {
    const int port = range.first + (start + i) % size;
    const std::optional<int> claimed = claim(port);
    if (!claimed) continue;
    claims_.push_back(*claimed);
    if (is_free(port)) {
      ports_.push_back(port);
    } else {
      ::close(*claimed);
      claims_.pop_back();
    }
  }
  if (ports_.size() < count) fail(range, count);
}

ReservedPorts::~ReservedPorts() {
  for (const int fd : claims_) ::close(fd);
}

}  // namespace cohort::internal::base
