// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/status/status_page.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/base/scope_exit.h"
#include "cohort/runtime/thread_name.h"

namespace cohort::internal::coordinator {
namespace {

using PageClock = std::chrono::steady_clock;

constexpr const char* kPage = "[status_page] ";
constexpr std::size_t kMostRequestBytes = 16384;
constexpr std::size_t kShortestPageToken = 16;
constexpr std::chrono::seconds kOneQuestion{2};

// What a question says, as far as it matters here.
struct Asked {
  std::string method = {};
  std::string path = {};
  std::string host = {};
  std::string authorization = {};
};

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

bool is_header(std::string_view name, const char* wanted) {
  return name.size() == std::strlen(wanted) && ::strncasecmp(name.data(), wanted, name.size()) == 0;
}

// nullopt: this is no question of HTTP.
std::optional<Asked> asked_of(std::string_view text) {
  const auto end = text.find("\r\n");
  const std::string_view line = text.substr(0, end);
  const auto first = line.find(' ');
  const auto last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return std::nullopt;
  if (line.substr(last + 1).rfind("HTTP/1.", 0) != 0) return std::nullopt;
  Asked out{.method = std::string(line.substr(0, first)),
            .path = std::string(line.substr(first + 1, last - first - 1))};
  out.path = out.path.substr(0, out.path.find('?'));
  for (std::string_view left = text.substr(end + 2); !left.empty();) {
    const auto stop = left.find("\r\n");
    const std::string_view header = left.substr(0, stop);
    const auto colon = header.find(':');
    if (colon == std::string_view::npos) break;
    const std::string_view name = header.substr(0, colon);
    if (is_header(name, "host")) out.host = trimmed(header.substr(colon + 1));
    if (is_header(name, "authorization")) out.authorization = trimmed(header.substr(colon + 1));
    left = stop == std::string_view::npos ? std::string_view() : left.substr(stop + 2);
  }
  return out;
}

// Other characters than base64's end it.
std::string of_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const auto digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = (bits << 6) | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(static_cast<char>((bits >> count) & 0xff));
  }
  return out;
}

// As long for a wrong one as for the right one of the same length.
bool is_password(const std::string& authorization, const rpc::Secret& token) {
  constexpr std::string_view kBasic = "Basic ";
  if (::strncasecmp(authorization.c_str(), kBasic.data(), kBasic.size()) != 0) return false;
  const std::string said =
      of_base64(trimmed(std::string_view(authorization).substr(kBasic.size())));
  const auto colon = said.find(':');
  if (colon == std::string::npos) return false;
  const auto bytes = token.bytes();
  if (said.size() - colon - 1 != bytes.size()) return false;
  volatile unsigned char differing = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    differing = differing | (static_cast<unsigned char>(said[colon + 1 + i]) ^ bytes[i]);
  }
  return differing == 0;
}

std::string reply(const char* status, const char* type, const std::string& body, bool has_body,
                  const char* more = "") {
  return str_cat("HTTP/1.1 ", status, "\r\nContent-Type: ", type,
                 "; charset=utf-8\r\nContent-Length: ", body.size(),
                 "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                 "Referrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n"
                 "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; "
                 "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n",
                 more, "Connection: close\r\n\r\n", has_body ? body : "");
}

std::string refusal(const char* status, const char* more = "") {
  return reply(status, "text/plain", str_cat(status, "\n"), true, more);
}

}  // namespace

struct StatusPage::Impl {
  Impl(Options given, std::function<std::string()> asks)
      : options(std::move(given)), json(std::move(asks)) {
    const std::string target = str_cat(options.host, ":", options.port);
    is_local = rpc::is_loopback_target(target);
    COHORT_CHECK_ARG(options.token.empty() || options.token.bytes().size() >= kShortestPageToken,
                     kPage, "expected a token of at least ", kShortestPageToken,
                     " bytes that nobody can guess, got ", options.token.bytes().size());
    COHORT_CHECK_ARG(is_local || (!options.token.empty() && options.allow_insecure), kPage,
                     "expected an address of this machine's loopback, such as 127.0.0.1, got ",
                     options.host, ": beyond it give a token, and allow_insecure ",
                     "(COHORT_ALLOW_INSECURE=1) on a network that you trust, for the page is not "
                     "encrypted; or reach it by ssh -L");
    listen(target);
    wakes = ::eventfd(0, EFD_CLOEXEC);
    COHORT_CHECK(wakes >= 0, "the system gives no eventfd: ", std::strerror(errno));
    thread = std::thread([this] { serve(); });
  }
  ~Impl() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(wakes, &one, sizeof one);
    thread.join();
    ::close(wakes);
    ::close(listening);
  }

  void listen(const std::string& target) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    const int error =
        ::getaddrinfo(options.host.c_str(), std::to_string(options.port).c_str(), &hints, &found);
    COHORT_CHECK_ARG(error == 0, kPage, "expected an address, got \"", options.host,
                     "\": ", ::gai_strerror(error));
    const base::ScopeExit freed([found] { ::freeaddrinfo(found); });
    listening = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    ::setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage at{};
    socklen_t size = sizeof at;
    auto* const generic = reinterpret_cast<sockaddr*>(&at);
    if (listening < 0 || ::bind(listening, found->ai_addr, found->ai_addrlen) != 0 ||
        ::listen(listening, 16) != 0 || ::getsockname(listening, generic, &size) != 0) {
      const std::string why = std::strerror(errno);
      if (listening >= 0) ::close(listening);
      throw Error(ErrorCode::kAlreadyExists,
                  str_cat(kPage, "expected to listen at ", target, ", got: ", why));
    }
    port = ntohs(at.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&at)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&at)->sin_port);
  }

  /// False: until then nothing was there, or the page ends.
  bool wait(int fd, short events, PageClock::time_point until) const {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - PageClock::now()).count();
    std::array<pollfd, 2> them = {pollfd{fd, events, 0}, pollfd{wakes, POLLIN, 0}};
    const int got = ::poll(them.data(), them.size(), static_cast<int>(std::max<long>(left, 0)));
    return got > 0 && them[1].revents == 0;
  }

  void serve() {
    runtime::set_thread_name("cohort-page");
    while (true) {
      std::array<pollfd, 2> them = {pollfd{listening, POLLIN, 0}, pollfd{wakes, POLLIN, 0}};
      if (::poll(them.data(), them.size(), -1) < 0) continue;  // a signal
      if (them[1].revents != 0) return;
      const int fd = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {  // it is gone again, or there is no descriptor left
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        continue;
      }
      const base::ScopeExit closed([fd] { ::close(fd); });
      try {
        talk(fd);
      } catch (const std::exception& e) {
        COHORT_LOG(kWarning, kPage, e.what());
      }
    }
  }

  void talk(int fd) const {
    const auto until = PageClock::now() + kOneQuestion;
    std::string text;
    std::array<char, 4096> bytes{};
    while (text.find("\r\n\r\n") == std::string::npos) {
      if (text.size() > kMostRequestBytes) {
        return send(fd, refusal("431 Request Header Fields Too Large"), until);
      }
      if (!wait(fd, POLLIN, until)) return;
      const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
      if (got > 0) text.append(bytes.data(), static_cast<std::size_t>(got));
    }
    send(fd, answer(text), until);
  }

  void send(int fd, const std::string& text, PageClock::time_point until) const {
    for (std::size_t at = 0; at < text.size();) {
      if (!wait(fd, POLLOUT, until)) return;
      const ssize_t put = ::send(fd, text.data() + at, text.size() - at, MSG_NOSIGNAL);
      if (put < 0 && errno != EAGAIN && errno != EINTR) return;
      at += static_cast<std::size_t>(std::max<ssize_t>(put, 0));
    }
    // What was sent would be lost with what has come and is not read.
    ::shutdown(fd, SHUT_WR);
  }

  std::string answer(const std::string& text) const {
    const auto asked = asked_of(text);
    if (!asked) return refusal("400 Bad Request");
    // A page of another site whose name has come to stand for this machine is not to read it.
    if (is_local && !is_own_name(asked->host)) return refusal("403 Forbidden");
    if (!options.token.empty() && !is_password(asked->authorization, options.token)) {
      return refusal("401 Unauthorized",
                     "WWW-Authenticate: Basic realm=\"cohort status\", charset=\"UTF-8\"\r\n");
    }
    const bool has_body = asked->method == "GET";
    if (!has_body && asked->method != "HEAD") {
      return refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
    }
    if (asked->path == "/status.json") {
      return reply("200 OK", "application/json", json(), has_body);
    }
    if (asked->path != "/") return refusal("404 Not Found");
    return reply("200 OK", "text/html", status_html(json()), has_body);
  }

  bool is_own_name(const std::string& host) const {
    const auto end = host.find(':', host.rfind(']') == std::string::npos ? 0 : host.rfind(']'));
    const std::string name = host.substr(0, end);
    return name == options.host || name == "localhost" || name == "127.0.0.1" || name == "[::1]";
  }

  const Options options;
  const std::function<std::string()> json;
  bool is_local = true;
  int port = 0;
  int listening = -1;
  int wakes = -1;
  std::thread thread;
};

StatusPage::StatusPage(Options options, std::function<std::string()> json)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(json))) {}

StatusPage::~StatusPage() = default;

std::string StatusPage::url() const {
  const std::string& host = impl_->options.host;
  const bool is_bare = host.find(':') != std::string::npos && host.front() != '[';
  return str_cat("http://", is_bare ? "[" : "", host, is_bare ? "]" : "", ":", impl_->port, "/");
}

}  // namespace cohort::internal::coordinator
