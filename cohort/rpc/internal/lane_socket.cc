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
  return {ErrorCode::kUnavailable, str_cat("[rpc] expected a lane, got ", call, ": ",
                                           std::generic_category().message(errno))};
}

// Abstract: it begins with a zero, is no file, and is gone with its socket.
std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name) {
  sockaddr_un out = {};
  out.sun_family = AF_UNIX;
  const std::size_t size = std::min(name.size(), sizeof(out.sun_path) - 1);
  std::copy_n(name.begin(), size, out.sun_path + 1);
  return {out, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size)};
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

LaneSocket connect_lane(const std::string& name) {
  LaneSocket socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket.fd() < 0) throw socket_error("socket");
  const timeval second{.tv_sec = 1, .tv_usec = 0};
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
  const auto [address, size] = abstract_address(name);
  if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    throw socket_error("connect");
  }
  if (!socket.is_of_our_user()) throw Error(ErrorCode::kUnavailable, "[rpc] another user's lane");
  return socket;
}

int receive_memory(const LaneSocket& socket, std::string_view proof) {
  if (::send(socket.fd(), proof.data(), proof.size(), MSG_NOSIGNAL) < 0) {
    throw socket_error("send");
  }
  DescriptorMessage received;
  const ssize_t got = ::recvmsg(socket.fd(), &received.message, MSG_CMSG_CLOEXEC);
  if (got < 0) throw socket_error("recvmsg");
  const cmsghdr* const part = CMSG_FIRSTHDR(&received.message);
  if (part == nullptr || part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS ||
      part->cmsg_len != CMSG_LEN(sizeof(int))) {
    throw Error(ErrorCode::kUnavailable, "[rpc] the server gives this process no lane");
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
