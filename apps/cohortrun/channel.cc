// SPDX-License-Identifier: Apache-2.0
#include "channel.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

#include "cohort/base/strings.h"

namespace cohortrun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kKinds = "HRJPASOETKBX";
constexpr std::size_t kLongestHeader = 16;
constexpr std::size_t kMostNoise = std::size_t{64} << 10;

// The number in "K 12".
std::optional<std::size_t> body_size(std::string_view header) {
  if (header.size() < 3 || kKinds.find(header[0]) == std::string_view::npos || header[1] != ' ') {
    return {};
  }
  std::size_t size = 0;
  const char* end = header.data() + header.size();
  const auto [rest, error] = std::from_chars(header.data() + 2, end, size);
  if (error != std::errc() || rest != end || size > Channel::kLongestBody) return {};
  return size;
}

}  // namespace

Channel::Channel(int in, int out) : in_(in), out_(out) {
  for (const int fd : {in_, out_}) {
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
}

Channel::Channel(int socket, const cohort::internal::rpc::TlsContext& tls,
                 cohort::internal::rpc::TlsSide side, const std::string& host)
    : Channel(socket, socket) {
  if (tls) tls_ = std::make_unique<cohort::internal::rpc::TlsSession>(tls, side, socket, host);
}

Channel::~Channel() { close(); }

Channel::Channel(Channel&& other) noexcept
    : in_(std::exchange(other.in_, -1)),
      out_(std::exchange(other.out_, -1)),
      tls_(std::move(other.tls_)),
      why_(std::move(other.why_)),
      skip_noise_(other.skip_noise_),
      unread_(std::move(other.unread_)) {}

Channel& Channel::operator=(Channel&& other) noexcept {
  if (this != &other) {
    close();
    in_ = std::exchange(other.in_, -1);
    out_ = std::exchange(other.out_, -1);
    tls_ = std::move(other.tls_);
    why_ = std::move(other.why_);
    skip_noise_ = other.skip_noise_;
    unread_ = std::move(other.unread_);
  }
  return *this;
}

void Channel::close() {
  tls_.reset();
  if (in_ >= 0) ::close(in_);
  if (out_ >= 0 && out_ != in_) ::close(out_);
  in_ = -1;
  out_ = -1;
}

// As write() and read() of the system.
ssize_t Channel::send_some(std::string_view bytes) {
  if (!tls_) return ::write(out_, bytes.data(), bytes.size());
  const std::array<iovec, 1> part = {{{const_cast<char*>(bytes.data()), bytes.size()}}};
  const ssize_t now = tls_->send(part, &why_);
  errno = now == 0 ? EAGAIN : EPIPE;
  return now == 0 ? -1 : now;
}

ssize_t Channel::read_some(char* to, std::size_t bytes) {
  if (!tls_) return ::read(in_, to, bytes);
  const ssize_t now = tls_->receive(reinterpret_cast<std::byte*>(to), bytes, &why_);
  errno = now == 0 ? EAGAIN : EPIPE;
  return now == 0 ? -1 : std::max<ssize_t>(now, 0);
}

// A moment at most. A handshake may have to wait for the other side instead.
void Channel::wait_to_send() {
  std::string none;
  using Handshake = cohort::internal::rpc::TlsSession::Handshake;
  const bool to_read = tls_ && tls_->shake_hands(&none) == Handshake::kWantsToRead;
  pollfd polled{.fd = to_read ? in_ : out_,
                .events = static_cast<short>(to_read ? POLLIN : POLLOUT),
                .revents = 0};
  ::poll(&polled, 1, 100);
}

void Channel::send(Kind kind, std::string_view body, std::chrono::seconds limit) {
  std::string text = cohort::str_cat(static_cast<char>(kind), " ", body.size(), "\n", body);
  const auto until = Clock::now() + limit;
  for (std::size_t at = 0; at < text.size() && out_ >= 0;) {
    const ssize_t now = send_some(std::string_view(text).substr(at));
    if (now > 0) at += static_cast<std::size_t>(now);
    if (now >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN || Clock::now() >= until) return close();
    wait_to_send();
  }
}

void Channel::read() {
  std::array<char, 65536> bytes;
  while (in_ >= 0) {
    const ssize_t got = read_some(bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return close();
    unread_.append(bytes.data(), static_cast<std::size_t>(got));
    // First what is there; of what TLS has read already no descriptor tells.
    if (unread_.size() > 2 * kLongestBody && !tls_) return;
  }
}

std::optional<Message> Channel::next() {
  for (;;) {
    const std::size_t end = unread_.find('\n');
    const auto size = body_size(std::string_view(unread_).substr(0, end));
    if (end == std::string::npos) {
      if (unread_.size() > (skip_noise_ ? kMostNoise : kLongestHeader)) close();
      return {};
    }
    if (!size && skip_noise_) {
      unread_.erase(0, end + 1);
      continue;
    }
    if (!size) {
      close();
      unread_.clear();
      return {};
    }
    if (unread_.size() - end - 1 < *size) return {};
    Message message{.kind = static_cast<Kind>(unread_[0]), .body = unread_.substr(end + 1, *size)};
    unread_.erase(0, end + 1 + *size);
    skip_noise_ = false;
    return message;
  }
}

}  // namespace cohortrun
