// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/internal/lane_socket.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"

namespace cohort::internal::rpc {
namespace {

constexpr int kLaneBacklog = 16;

Error socket_error(const char* call) {
  const bool is_late = errno == EAGAIN || errno == EWOULDBLOCK;
  return {
      is_late ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable,
      str_cat("[rpc] expected a lane, got ", call, ": ", std::generic_category().message(errno))};
}

// Abstract: it begins with a zero, is no file, and is gone with its socket.
std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name) {
  sockaddr_un out = {};
  out.sun_family = AF_UNIX;
  const std::size_t size = std::min(name.size(), sizeof(out.sun_path) - 1);
  std::copy_n(name.begin(), size, out.sun_path + 1);
  return {out, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size)};
}

// Of the next system call.
void set_time_left(const LaneSocket& socket, LaneTime until) {
  using std::chrono::microseconds;
  const auto left = std::chrono::duration_cast<microseconds>(until - LaneTime::clock::now());
  const int64_t us = std::max<int64_t>(left.count(), 1);  // 0 would be for ever
  const timeval wait{.tv_sec = us / 1'000'000, .tv_usec = us % 1'000'000};
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
}

// Again where a signal has ended it.
template <class Call>
ssize_t in_time(const LaneSocket& socket, LaneTime until, const Call& call) {
  ssize_t out = -1;
  do {
    set_time_left(socket, until);
    out = call();
  } while (out < 0 && errno == EINTR && LaneTime::clock::now() < until);
  return out;
}

// With room for one descriptor behind one byte.
struct DescriptorMessage {
  DescriptorMessage() {
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  char byte = 0;
  iovec bytes = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr message = {};
};

}  // namespace

LaneSocket connect_lane(const std::string& name, LaneTime until) {
  LaneSocket socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket.fd() < 0) throw socket_error("socket");
  const auto at = abstract_address(name);
  const auto* const generic = reinterpret_cast<const sockaddr*>(&at.first);
  const auto connect = [&] { return ::connect(socket.fd(), generic, at.second); };
  if (in_time(socket, until, connect) != 0) throw socket_error("connect");
  if (!socket.is_of_our_user()) throw Error(ErrorCode::kUnavailable, "[rpc] another user's lane");
  return socket;
}

int receive_memory(const LaneSocket& socket, std::string_view proof, LaneTime until) {
  const auto send = [&] { return ::send(socket.fd(), proof.data(), proof.size(), MSG_NOSIGNAL); };
  if (in_time(socket, until, send) < 0) throw socket_error("send");
  DescriptorMessage received;
  const auto receive = [&] { return ::recvmsg(socket.fd(), &received.message, MSG_CMSG_CLOEXEC); };
  if (in_time(socket, until, receive) < 0) throw socket_error("recvmsg");
  const cmsghdr* const part = CMSG_FIRSTHDR(&received.message);
  if (part == nullptr || part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS ||
      part->cmsg_len != CMSG_LEN(sizeof(int))) {
    throw Error(ErrorCode::kResourceExhausted, "[rpc] the server gives this process no lane");
  }
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(part), sizeof descriptor);
  return descriptor;
}

LaneSocket listen_for_lanes(std::string* name) {
  std::array<unsigned char, 16> random = {};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    throw socket_error("getrandom");
  }
  *name = "cohort-lane-";
  for (const unsigned char byte : random) {
    for (const int digit : {byte >> 4, byte & 15}) name->push_back("0123456789abcdef"[digit]);
  }
  LaneSocket socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) throw socket_error("socket");
  const auto [address, size] = abstract_address(*name);
  if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    throw socket_error("bind");
  }
  if (::listen(socket.fd(), kLaneBacklog) != 0) throw socket_error("listen");
  return socket;
}

bool send_memory(const LaneSocket& socket, int descriptor) {
  DescriptorMessage sent;
  cmsghdr* const part = CMSG_FIRSTHDR(&sent.message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
  return ::sendmsg(socket.fd(), &sent.message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

}  // namespace cohort::internal::rpc
