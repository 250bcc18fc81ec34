// SPDX-License-Identifier: Apache-2.0
//
// A small HTTP server, which answers as a test says.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "cohort/base/mutex.h"
#include "cohort/base/strings.h"
#include "cohort/testing/ports.h"

namespace cohort::testing {

/// One answer for each request line; any other is not found. Threads: one of its own serves.
class HttpServer {
 public:
  struct Answer {
    std::string body = {};
    int status = 200;
  };
  using Answers = std::map<std::string, Answer>;
  explicit HttpServer(Answers answers) : answers_(std::move(answers)) {
    const BoundSocket bound = bind_free_port();
    listening_ = bound.descriptor;
    EXPECT_EQ(::listen(listening_, 16), 0);
    address_ = str_cat("127.0.0.1:", bound.port);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    ::shutdown(listening_, SHUT_RDWR);
    thread_.join();
    ::close(listening_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  const std::string& address() const { return address_; }
  /// All that was asked, with headers and bodies.
  std::string asked() const {
    const internal::base::MutexLock lock(mutex_);
    return asked_;
  }

 private:
  // With its body, if it says that it has one.
  static bool is_whole(const std::string& request) {
    const std::size_t end = request.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    const std::string name = "Content-Length: ";
    const std::size_t at = request.find(name);
    if (at == std::string::npos || at > end) return true;
    return request.size() >= end + 4 + std::stoul(request.substr(at + name.size()));
  }
  void serve() {
    for (;;) {
      const int fd = ::accept(listening_, nullptr, nullptr);
      if (fd < 0) return;
      answer(fd);
      ::close(fd);
    }
  }
  void answer(int fd) {
    std::string request;
    std::array<char, 4096> bytes;
    while (!is_whole(request)) {
      const ssize_t got = ::read(fd, bytes.data(), bytes.size());
      if (got <= 0) return;
      request.append(bytes.data(), static_cast<std::size_t>(got));
    }
    {
      const internal::base::MutexLock lock(mutex_);
      asked_ += request + "\n";
    }
    const auto found = answers_.find(request.substr(0, request.find(" HTTP/")));
    const Answer answer =
        found == answers_.end() ? Answer{.body = "no such thing", .status = 404} : found->second;
    const std::string text =
        str_cat("HTTP/1.1 ", answer.status, " X\r\nContent-Length: ", answer.body.size(),
                "\r\nConnection: close\r\n\r\n", answer.body);
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t now = ::send(fd, text.data() + at, text.size() - at, MSG_NOSIGNAL);
      if (now <= 0) return;
      at += static_cast<std::size_t>(now);
    }
  }

  const Answers answers_;
  int listening_ = -1;
  std::string address_;
  mutable internal::base::Mutex mutex_;
  std::string asked_ COHORT_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace cohort::testing
