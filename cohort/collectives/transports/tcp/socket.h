// SPDX-License-Identifier: Apache-2.0
//
// What the transport needs of TCP sockets.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "cohort/collectives/transport.h"

namespace cohort::internal {

/// Owns a file descriptor of a socket that does not block. Threads: thread-compatible.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
};

struct HostPort {
  std::string host = {};
  int port = 0;
};
/// Of "host:port" or "[::1]:port". Errors: InvalidArgument that quotes the text.
HostPort parse_address(const char* operation, const std::string& address);
/// Whether the name stands for addresses of this machine's loopback alone.
/// Errors: Unavailable if it stands for none.
bool is_loopback(const std::string& address);

/// Listens at the address, or, with `any_interface`, at its port on all interfaces.
/// Errors: Error kAlreadyExists that names the address where somebody listens there.
Socket listen_at(const std::string& address, bool any_interface);
/// Listens on a port of loopback that is free; `address` gets it.
Socket listen_on_free_port(std::string* address);

/// Who has come to a listening socket; no socket if nobody has.
Socket accept_from(const Socket& listener);
/// Whether both ends of a connection are this socket.
bool is_connected_to_itself(const Socket& socket);
/// Tries once. Returns no socket and says `why` where nobody answers.
Socket connect_to(const std::string& address, Deadline deadline, std::string* why);
/// Waits until a descriptor can be read (or written); false after the deadline.
bool wait_for_fd(int fd, bool to_write, Deadline deadline);
/// Milliseconds until then, for poll(): at least 0, rounded up.
int milliseconds_until(Deadline deadline);
/// "Connection refused".
std::string error_text(int error);

}  // namespace cohort::internal
