// SPDX-License-Identifier: Apache-2.0
//
// A link to a server of gRPC's that loses answers, for tests: it stands between client and server,
// and cuts the connection instead of bringing an answer. What was asked has been done by then.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <list>
#include <string>
#include <thread>
#include <vector>

namespace cohort::internal::coordinator {

/// Threads: thread-safe.
class LossyLink {
 public:
  /// Of each connection it loses answer number `every`, with all that is under way.
  LossyLink(const std::string& server, int every)
      : server_port_(std::stoi(server.substr(server.rfind(':') + 1))), every_(every) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at = loopback(0);
    socklen_t size = sizeof at;
    auto* const generic = reinterpret_cast<sockaddr*>(&at);
    EXPECT_EQ(::bind(listener_, generic, size), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    EXPECT_EQ(::getsockname(listener_, generic, &size), 0);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~LossyLink() {
    ends_ = true;
    thread_.join();
    for (const Connection& each : connections_) close_both(each);
    ::close(listener_);
  }
  LossyLink(const LossyLink&) = delete;
  LossyLink& operator=(const LossyLink&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int lost() const { return lost_; }

 private:
  struct Connection {
    int client = -1;
    int server = -1;
    std::string frame = {};  // the beginning of the server's next frame
    int answers = 0;
    bool is_over = false;
  };

  static sockaddr_in loopback(int port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    out.sin_port = htons(static_cast<uint16_t>(port));
    return out;
  }
  static void close_both(const Connection& connection) {
    ::close(connection.client);
    ::close(connection.server);
  }
  static bool send_all(int to, const char* data, std::size_t size) {
    while (size > 0) {
      const ssize_t sent = ::send(to, data, size, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      data += sent;
      size -= static_cast<std::size_t>(sent);
    }
    return true;
  }

  void run() {
    while (!ends_) {
      std::vector<pollfd> ready{{listener_, POLLIN, 0}};
      for (const Connection& each : connections_) {
        ready.push_back({each.client, POLLIN, 0});
        ready.push_back({each.server, POLLIN, 0});
      }
      ::poll(ready.data(), ready.size(), /*timeout=*/20);  // then it looks whether it is to end
      std::size_t at = 1;
      for (Connection& each : connections_) {
        if (ready[at].revents != 0) bring_question(each);
        if (ready[at + 1].revents != 0 && !each.is_over) bring_answer(each);
        at += 2;
      }
      connections_.remove_if([](const Connection& each) {
        if (each.is_over) close_both(each);
        return each.is_over;
      });
      if (ready[0].revents != 0) accept();
    }
  }

  void accept() {
    Connection made{.client = ::accept(listener_, nullptr, nullptr),
                    .server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in at = loopback(server_port_);
    if (::connect(made.server, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) {
      return close_both(made);
    }
    connections_.push_back(made);
  }

  void bring_question(Connection& connection) {
    const ssize_t size = ::recv(connection.client, buffer_.data(), buffer_.size(), 0);
    connection.is_over =
        size <= 0 || !send_all(connection.server, buffer_.data(), static_cast<std::size_t>(size));
  }

  // HTTP/2: a frame begins with 3 bytes of size and one that says what it is; an answer begins with
  // one of headers, and ends with one.
  void bring_answer(Connection& connection) {
    constexpr std::size_t kFrameHeader = 9;
    constexpr char kHeaders = 1;
    const ssize_t size = ::recv(connection.server, buffer_.data(), buffer_.size(), 0);
    if (size <= 0) return static_cast<void>(connection.is_over = true);
    std::string& frame = connection.frame;
    frame.append(buffer_.data(), static_cast<std::size_t>(size));
    while (frame.size() >= kFrameHeader) {
      const auto byte = [&](int i) { return std::size_t{static_cast<unsigned char>(frame[i])}; };
      const std::size_t whole = kFrameHeader + (byte(0) << 16 | byte(1) << 8 | byte(2));
      if (frame.size() < whole) return;
      if (frame[3] == kHeaders && ++connection.answers == 2 * every_ - 1) {
        ++lost_;
        return static_cast<void>(connection.is_over = true);
      }
      if (!send_all(connection.client, frame.data(), whole)) connection.is_over = true;
      frame.erase(0, whole);
    }
  }

  const int server_port_;
  const int every_;
  int listener_ = -1;
  int port_ = 0;
  std::array<char, 1 << 16> buffer_;
  std::list<Connection> connections_;
  std::atomic<int> lost_ = 0;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace cohort::internal::coordinator
