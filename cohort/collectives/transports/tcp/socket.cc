// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/tcp/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/base/fork_descriptors.h"
#include "cohort/rpc/loopback.h"

namespace cohort::internal::collectives {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const HostPort& at, bool to_listen, std::string* why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const std::string port = std::to_string(at.port);
  const int error =
      ::getaddrinfo(at.host.empty() ? nullptr : at.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) *why = ::gai_strerror(error);
  return Addresses(error == 0 ? found : nullptr, &::freeaddrinfo);
}

Socket new_socket(int family) {
  return Socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void set_option(const Socket& socket, int level, int name) {
  const int on = 1;
  ::setsockopt(socket.fd(), level, name, &on, sizeof on);
}

// An address to listen at; -1 and errno where that cannot be.
Socket try_listen(const addrinfo& at, bool any_interface) {
  Socket socket = new_socket(at.ai_family);
  if (!socket) return socket;
  set_option(socket, SOL_SOCKET, SO_REUSEADDR);  // a job that starts again at once
  if (any_interface && at.ai_family == AF_INET6) {
    const int off = 0;  // IPv4's callers come here, too
    ::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  constexpr int kBacklog = 1024;
  if (::bind(socket.fd(), at.ai_addr, at.ai_addrlen) != 0 || ::listen(socket.fd(), kBacklog) != 0) {
    const int error = errno;
    socket.close();
    errno = error;
  }
  return socket;
}

Socket try_connect(const addrinfo& to, Deadline deadline, std::string* why) {
  Socket socket = new_socket(to.ai_family);
  if (!socket) {
    *why = error_text(errno);
    return socket;
  }
  set_option(socket, IPPROTO_TCP, TCP_NODELAY);
  int error = ::connect(socket.fd(), to.ai_addr, to.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    error = ETIMEDOUT;
    if (wait_for_fd(socket.fd(), /*to_write=*/true, deadline)) {
      socklen_t size = sizeof error;
      ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  // Where nobody listens, the system may give a caller the very port it calls.
  if (error == 0 && is_connected_to_itself(socket)) error = ECONNREFUSED;
  if (error != 0) {
    *why = error_text(error);
    socket.close();
  }
  return socket;
}

}  // namespace

void Socket::keep_from_children() {
  base::close_in_children(fd_);
  is_kept_from_children_ = true;
}

void Socket::close() {
  tls_.reset();
  const bool is_open = !is_kept_from_children_ || base::close_no_more_in_children(fd_);
  if (fd_ >= 0 && is_open) ::close(fd_);
  is_kept_from_children_ = false;
  fd_ = -1;
}

ssize_t Socket::send(std::span<const iovec> parts, std::string* why) const {
  if (tls_) return tls_->send(parts, why);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  for (;;) {
    const ssize_t sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return sent;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    *why = error_text(errno);
    return -1;
  }
}

ssize_t Socket::receive(std::byte* to, std::size_t bytes, std::string* why) const {
  if (tls_) return tls_->receive(to, bytes, why);
  for (;;) {
    const ssize_t got = ::recv(fd_, to, bytes, MSG_DONTWAIT);
    if (got > 0) return got;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
    *why = got == 0 ? "the connection was closed" : error_text(errno);
    return -1;
  }
}

bool shake_hands(const Socket& socket, Deadline deadline, std::string* why) {
  for (;;) {
    const rpc::TlsSession::Handshake now = socket.tls()->shake_hands(why);
    if (now == rpc::TlsSession::Handshake::kDone) return true;
    if (now == rpc::TlsSession::Handshake::kFailed) return false;
    *why = "no answer";
    const bool to_write = now == rpc::TlsSession::Handshake::kWantsToWrite;
    if (!wait_for_fd(socket.fd(), to_write, deadline)) return false;
  }
}

std::string error_text(int error) { return std::system_category().message(error); }

int milliseconds_until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  constexpr int64_t kHour = 3'600'000;
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, kHour));
}

bool wait_for_fd(int fd, bool to_write, Deadline deadline) {
  for (;;) {
    pollfd one{.fd = fd, .events = static_cast<short>(to_write ? POLLOUT : POLLIN), .revents = 0};
    const int left = milliseconds_until(deadline);
    if (::poll(&one, 1, left) > 0) return true;
    if (left == 0) return false;
  }
}

HostPort parse_address(const char* operation, const std::string& address) {
  HostPort out;
  const std::size_t colon = address.rfind(':');
  bool good = colon != std::string::npos && colon > 0;
  if (good) {
    out.host = address.substr(0, colon);
    const char* end = address.data() + address.size();
    const auto [rest, error] = std::from_chars(address.data() + colon + 1, end, out.port);
    good = error == std::errc() && rest == end && out.port > 0 && out.port < 65536;
  }
  if (good && out.host.front() == '[' && out.host.back() == ']') {
    out.host = out.host.substr(1, out.host.size() - 2);
  } else if (out.host.find_first_of(":/ ") != std::string::npos) {
    good = false;
  }
  COHORT_CHECK_ARG(good, operation, "expected an address host:port, got \"", address, "\"");
  return out;
}

bool is_loopback(const std::string& address) {
  std::string why;
  const Addresses found = resolve(parse_address("[cluster] ", address), /*to_listen=*/false, &why);
  if (!found) {
    throw Unavailable(str_cat("[cluster] expected a host name that can be resolved, got \"",
                              address, "\": ", why),
                      address);
  }
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    if (!rpc::is_loopback_address(each->ai_addr)) return false;
  }
  return true;
}

Socket listen_at(const std::string& address, bool any_interface) {
  HostPort at = parse_address("[cluster] ", address);
  if (any_interface) at.host.clear();
  std::string why;
  int error = 0;
  const Addresses found = resolve(at, /*to_listen=*/true, &why);
  std::vector<const addrinfo*> places;
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    places.push_back(each);
  }
  if (any_interface) {
    std::stable_partition(places.begin(), places.end(),
                          [](const addrinfo* each) { return each->ai_family == AF_INET6; });
  }
  for (const addrinfo* each : places) {
    Socket socket = try_listen(*each, any_interface);
    if (socket) return socket;
    error = errno;
    why = error_text(error);
  }
  const std::string text =
      str_cat("[cluster] expected to listen at this task's address ", address, ", got: ", why);
  if (error == EADDRINUSE) {
    throw Error(ErrorCode::kAlreadyExists,
                text + "; is this task started twice, or the port another program's?");
  }
  throw Unavailable(text + "; is this task started on the machine that its address names?",
                    address);
}

Socket listen_on_free_port(std::string* address) {
  Socket socket = new_socket(AF_INET);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* generic = reinterpret_cast<sockaddr*>(&at);
  if (!socket || ::bind(socket.fd(), generic, size) != 0 || ::listen(socket.fd(), 64) != 0 ||
      ::getsockname(socket.fd(), generic, &size) != 0) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[cluster] expected a free port on loopback, got: ", error_text(errno)));
  }
  *address = str_cat("127.0.0.1:", ntohs(at.sin_port));
  return socket;
}

bool is_connected_to_itself(const Socket& socket) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t size = sizeof here;
  if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&here), &size) != 0) return false;
  size = sizeof there;
  if (::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&there), &size) != 0) return false;
  return std::memcmp(&here, &there, sizeof here) == 0;
}

Socket accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) set_option(socket, IPPROTO_TCP, TCP_NODELAY);
  return socket;
}

Socket connect_to(const std::string& address, Deadline deadline, std::string* why) {
  const Addresses found = resolve(parse_address("[cluster] ", address), /*to_listen=*/false, why);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    Socket socket = try_connect(*each, deadline, why);
    if (socket) return socket;
  }
  return {};
}

}  // namespace cohort::internal::collectives
