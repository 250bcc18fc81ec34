// SPDX-License-Identifier: Apache-2.0
//
// A server that stands still, for tests: what is sent to it passes through here, until it does not.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

namespace cohort::internal::rpc {

/// Threads: thread-safe. One connection.
class StalledLink {
 public:
  explicit StalledLink(int to_port) : to_(to_port), listener_(tcp_socket()) {
    sockaddr_in at = loopback(0);
    socklen_t size = sizeof at;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&at), size) != 0 ||
        ::listen(listener_, 4) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
      return;
    }
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    thread_ = std::thread([this] { run(); });
  }
  ~StalledLink() {
    ends_ = true;
    if (thread_.joinable()) thread_.join();
    ::close(listener_);
  }
  StalledLink(const StalledLink&) = delete;
  StalledLink& operator=(const StalledLink&) = delete;

  /// Empty: the system refuses it.
  const std::string& address() const { return address_; }
  /// From now on nothing is read any more, on either side.
  void stall() { stalls_ = true; }
  /// Ends the connection; the next one passes.
  void cut() {
    cuts_ = true;
    stalls_ = false;
  }

 private:
  static int tcp_socket() { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }
  static sockaddr_in loopback(int port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
  }
  static bool is_readable(int fd, int milliseconds) {
    pollfd look{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&look, 1, milliseconds) > 0;
  }
  // False: one side has closed it.
  static bool pass_on(int from, int to) {
    if (!is_readable(from, 0)) return true;
    std::array<char, 64 << 10> bytes;
    const ssize_t got = ::recv(from, bytes.data(), bytes.size(), 0);
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t now = ::send(to, bytes.data() + sent, got - sent, MSG_NOSIGNAL);
      if (now <= 0) return false;
      sent += now;
    }
    return got > 0;
  }
  void run() {
    while (!ends_) {
      if (!is_readable(listener_, 5)) continue;
      const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const int server = tcp_socket();
      sockaddr_in at = loopback(to_);
      bool stands = ::connect(server, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
      cuts_ = false;
      while (stands && !ends_ && !cuts_) {
        if (stalls_) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          continue;
        }
        std::array<pollfd, 2> both{pollfd{client, POLLIN, 0}, pollfd{server, POLLIN, 0}};
        ::poll(both.data(), both.size(), 5);
        stands = pass_on(client, server) && pass_on(server, client);
      }
      ::close(client);
      ::close(server);
    }
  }

  const int to_;
  const int listener_;
  std::string address_;
  std::atomic<bool> stalls_ = false;
  std::atomic<bool> cuts_ = false;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace cohort::internal::rpc
