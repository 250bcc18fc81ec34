// SPDX-License-Identifier: Apache-2.0
//
// What the transport needs of TCP sockets.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cohort/collectives/transport.h"
#include "cohort/rpc/tls.h"

namespace cohort::internal::collectives {

/// Owns a file descriptor of a socket that does not block. Threads: thread-compatible; send() and
/// receive() may be called by two threads.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        is_kept_from_children_(other.is_kept_from_children_),
        tls_(std::move(other.tls_)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(is_kept_from_children_, other.is_kept_from_children_);
    std::swap(tls_, other.tls_);
    return *this;
  }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();
  /// From here on a child of this process has it closed: who is at the other end learns of this
  /// process's death, although the child lives.
  void keep_from_children();

  /// From here on all that it carries is encrypted, and both sides are proved. As TlsSession.
  void secure(const rpc::TlsContext& context, rpc::TlsSide side, const std::string& host = {}) {
    tls_ = std::make_unique<rpc::TlsSession>(context, side, fd_, host);
  }
  rpc::TlsSession* tls() const { return tls_.get(); }  ///< Null: nothing is encrypted.

  /// Sends what can be sent now, and returns how many bytes that was; -1 and `why` if none can be
  /// any more. What is left of a message is sent next. Blocks: never.
  ssize_t send(std::span<const iovec> parts, std::string* why) const;
  /// Whether the first of what send() has not counted is on its way already.
  bool has_begun_to_send() const { return tls_ && tls_->has_begun_to_send(); }
  /// Reads what is there; -1 and `why` if nothing comes any more. Blocks: never.
  ssize_t receive(std::byte* to, std::size_t bytes, std::string* why) const;

 private:
  int fd_ = -1;
  bool is_kept_from_children_ = false;
  std::unique_ptr<rpc::TlsSession> tls_;
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
/// Waits until both sides have proved who they are; of a socket with TLS. False and `why` if not.
bool shake_hands(const Socket& socket, Deadline deadline, std::string* why);
/// Tries once. Returns no socket and says `why` where nobody answers.
Socket connect_to(const std::string& address, Deadline deadline, std::string* why);
/// Waits until a descriptor can be read (or written); false after the deadline.
bool wait_for_fd(int fd, bool to_write, Deadline deadline);
/// Milliseconds until then, for poll(): at least 0, rounded up.
int milliseconds_until(Deadline deadline);
/// "Connection refused".
std::string error_text(int error);

}  // namespace cohort::internal::collectives
