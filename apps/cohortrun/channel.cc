// SPDX-License-Identifier: Apache-2.0
#include "channel.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

#include "cohort/base/strings.h"

namespace cohortrun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kKinds = "HRJPASOEKBX";
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

Channel::~Channel() { close(); }

Channel::Channel(Channel&& other) noexcept
    : in_(std::exchange(other.in_, -1)),
      out_(std::exchange(other.out_, -1)),
      skip_noise_(other.skip_noise_),
      unread_(std::move(other.unread_)) {}

Channel& Channel::operator=(Channel&& other) noexcept {
  if (this != &other) {
    close();
    in_ = std::exchange(other.in_, -1);
    out_ = std::exchange(other.out_, -1);
    skip_noise_ = other.skip_noise_;
    unread_ = std::move(other.unread_);
  }
  return *this;
}

void Channel::close() {
  if (in_ >= 0) ::close(in_);
  if (out_ >= 0 && out_ != in_) ::close(out_);
  in_ = -1;
  out_ = -1;
}

void Channel::send(Kind kind, std::string_view body, std::chrono::seconds limit) {
  std::string text = cohort::str_cat(static_cast<char>(kind), " ", body.size(), "\n", body);
  const auto until = Clock::now() + limit;
  for (std::size_t at = 0; at < text.size() && out_ >= 0;) {
    const ssize_t now = ::write(out_, text.data() + at, text.size() - at);
    if (now > 0) at += static_cast<std::size_t>(now);
    if (now >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN || Clock::now() >= until) return close();
    pollfd polled{.fd = out_, .events = POLLOUT, .revents = 0};
    ::poll(&polled, 1, 100);
  }
}

void Channel::read() {
  std::array<char, 65536> bytes;
  while (in_ >= 0) {
    const ssize_t got = ::read(in_, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return close();
    unread_.append(bytes.data(), static_cast<std::size_t>(got));
    if (unread_.size() > 2 * kLongestBody) return;  // first what is there
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
