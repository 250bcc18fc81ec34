// SPDX-License-Identifier: Apache-2.0
#include "network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "cohort/base/strings.h"

namespace cohortrun {
namespace {

using cohort::str_cat;

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const Endpoint& at) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::string host = at.host;
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  if (::getaddrinfo(host.c_str(), std::to_string(at.port).c_str(), &hints, &found) != 0) return {};
  return Addresses(found);
}

std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    ::inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
    return text.data();
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  ::inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
  return str_cat("[", text.data(), "]");
}

void set_option(int socket, int level, int name, int value) {
  ::setsockopt(socket, level, name, &value, sizeof value);
}

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};

bool is_ip(const ifaddrs& each) {
  return each.ifa_addr != nullptr &&
         (each.ifa_addr->sa_family == AF_INET || each.ifa_addr->sa_family == AF_INET6);
}

std::unique_ptr<ifaddrs, FreeInterfaces> interfaces() {
  ifaddrs* list = nullptr;
  ::getifaddrs(&list);
  return std::unique_ptr<ifaddrs, FreeInterfaces>(list);
}

}  // namespace

Endpoint endpoint_of(const std::string& text, int default_port, const std::string& what) {
  const std::size_t colon = text.rfind(':');
  const bool has_port = colon != std::string::npos && text.find(']', colon) == std::string::npos &&
                        (text.find(':') == colon || text[colon - 1] == ']');
  Endpoint out{.host = has_port ? text.substr(0, colon) : text, .port = default_port};
  if (has_port) {
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, out.port);
    if (error != std::errc() || rest != end || out.port < 1 || out.port > 65'535) out.host.clear();
  }
  if (out.host.empty()) {
    throw std::runtime_error(str_cat("expected host:port as ", what, ", got \"", text, "\""));
  }
  return out;
}

std::string address_of_interface(const std::string& name) {
  const auto list = interfaces();
  std::vector<std::string> names;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = list.get(); each != nullptr; each = each->ifa_next) {
      if (!is_ip(*each)) continue;
      if (each->ifa_name == name && each->ifa_addr->sa_family == family) {
        return text_of(each->ifa_addr);
      }
      if (std::find(names.begin(), names.end(), each->ifa_name) == names.end()) {
        names.emplace_back(each->ifa_name);
      }
    }
  }
  throw std::runtime_error(
      str_cat("expected --interface to be one of ", cohort::join(names, ", "), ", got ", name));
}

std::string own_host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host == "::1" || host.rfind("127.", 0) == 0;
}

bool is_this_host(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1" || host == own_host_name();
}

int listen_at(const Endpoint& at) {
  const Addresses addresses = resolve(at);
  if (!addresses) return kNameNotKnown;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    const int fd = ::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) continue;
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    constexpr int kWaiting = 128;
    if (::bind(fd, each->ai_addr, each->ai_addrlen) == 0 && ::listen(fd, kWaiting) == 0) return fd;
    ::close(fd);
  }
  return -1;
}

std::string address_text(const sockaddr_storage& address) {
  return text_of(reinterpret_cast<const sockaddr*>(&address));
}

int accept_from(int listening, std::string* from) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const int fd = ::accept4(listening, generic, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return -1;
  *from = address_text(address);
  notice_silence(fd);
  return fd;
}

int begin_to_connect(const Endpoint& to) {
  const Addresses addresses = resolve(to);
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    const int fd = ::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) continue;
    if (::connect(fd, each->ai_addr, each->ai_addrlen) == 0 || errno == EINPROGRESS) return fd;
    ::close(fd);
  }
  return -1;
}

bool has_connected(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) return false;
  sockaddr_storage peer{};
  size = sizeof peer;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  // Where nobody listens, a socket can come to connect with itself.
  sockaddr_storage own{};
  socklen_t own_size = sizeof own;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_size);
  return own_size != size || std::memcmp(&own, &peer, size) != 0;
}

void notice_silence(int socket) {
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 25'000);
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
}

}  // namespace cohortrun
