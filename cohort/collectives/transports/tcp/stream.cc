// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/tcp/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace cohort::internal::collectives {
namespace {

// How long a carrier may take for what its sender has left.
constexpr std::chrono::seconds kCarriesOn{3};
constexpr std::size_t kBufferBytes = std::size_t{64} << 10;

// What stands in for the memory of a message that was withdrawn.
const std::array<std::byte, kBufferBytes>& zeros() {
  static const std::array<std::byte, kBufferBytes> instance = {};
  return instance;
}

}  // namespace

TcpStream::TcpStream(int peer, Socket socket)
    : peer_(peer), socket_(std::move(socket)), buffer_(kBufferBytes) {}

void TcpStream::broken(std::string why) {
  state_ = State::kBroken;
  why_ = std::move(why);
}

void TcpStream::send(const ExchangeKey& key, const CallSignature& signature, ConstBytes bytes) {
  if (state_ != State::kOpen) return;
  outgoing_.push_back(
      {.header = FrameHeader::of(generation_, key, signature, bytes.size()), .bytes = bytes});
  write_some();
}

void TcpStream::send_plain(FrameHeader::Kind kind, uint64_t generation) {
  if (state_ != State::kOpen) return;
  outgoing_.push_back({.header = {.kind = kind, .generation = generation}, .bytes = {}});
  write_some();
}

bool TcpStream::is_sent(const ExchangeKey& key) const {
  // A carrier moves nothing while nobody waits for it.
  return has_sent_all() &&
         std::none_of(outgoing_.begin(), outgoing_.end(), [&](const Outgoing& one) {
           return !one.withdrawn && one.header.generation == generation_ &&
                  one.header.kind == FrameHeader::Kind::kMessage && one.header.key() == key;
         });
}

template <class Writer>
ssize_t TcpStream::write_parts(std::span<iovec> parts, Writer& to) {
  std::size_t all = 0;
  for (const iovec& part : parts) {
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(part.iov_base),
                                           part.iov_len);
    const std::size_t now = to.write(bytes);
    all += now;
    if (now < bytes.size()) break;
  }
  if (all > 0) to.publish();
  return static_cast<ssize_t>(all);
}

ssize_t TcpStream::carry(std::span<iovec> parts) {
  try {
    const ssize_t sent = write_parts(parts, *carrier_);
    carried_ += static_cast<uint64_t>(sent);
    return sent;
  } catch (const Error& e) {
    broken(e.what());
    return 0;
  }
}

ssize_t TcpStream::fetch(std::byte* to, std::size_t bytes) {
  try {
    const std::size_t got = carrier_->read({to, bytes});
    carried_ += got;
    return static_cast<ssize_t>(got);
  } catch (const Error& e) {
    broken(e.what());
    return 0;
  }
}

// Returns what was taken; 0 if there is no room now, or never again.
ssize_t TcpStream::transmit(std::span<iovec> parts) {
  if (rings_) return write_parts(parts, rings_->to_peer);
  if (carrier_) return carry(parts);
  std::string why;
  const ssize_t sent = socket_.send(parts, &why);
  if (sent < 0) give_up(why);  // it may have said goodbye before
  return std::max<ssize_t>(sent, 0);
}

void TcpStream::write_some() {
  while (wants_to_write()) {
    Outgoing& next = outgoing_.front();
    std::array<iovec, 2> parts = {};
    std::size_t count = 0;
    if (next.sent < sizeof next.header) {
      parts[count++] = {reinterpret_cast<std::byte*>(&next.header) + next.sent,
                        sizeof next.header - next.sent};
    }
    const std::size_t at = next.sent - std::min(next.sent, sizeof next.header);
    if (at < next.header.bytes) {
      const std::size_t left = next.header.bytes - at;
      const std::byte* from = next.withdrawn ? zeros().data() : next.bytes.data() + at;
      parts[count++] = {const_cast<std::byte*>(from),
                        next.withdrawn ? std::min(left, kBufferBytes) : left};
    }
    const ssize_t sent = transmit({parts.data(), count});
    if (sent <= 0) return;
    next.sent += static_cast<std::size_t>(sent);
    if (next.is_whole()) outgoing_.pop_front();
  }
}

void TcpStream::expect(const ExchangeKey& key, const CallSignature& signature, Bytes into) {
  Incoming& message = incoming_[{generation_, key}];
  if (message.begun) return;
  message.expected = signature;
  message.into = into;
  message.is_expected = true;
}

bool TcpStream::has_come(const ExchangeKey& key) const {
  const auto found = incoming_.find({generation_, key});
  return found != incoming_.end() && found->second.whole;
}

void TcpStream::take(const ExchangeKey& key, const CallSignature& signature, int rank, Bytes into) {
  const auto found = incoming_.find({generation_, key});
  const Incoming message = std::move(found->second);
  incoming_.erase(found);
  check_same_signature(signature, rank, message.header.signature(), peer_);
  check_same_length(signature, rank, into.size(), peer_, message.header.bytes);
  if (!message.kept.empty()) std::memcpy(into.data(), message.kept.data(), into.size());
}

void TcpStream::withdraw_expected(const ExchangeKey& key) noexcept {
  const auto found = incoming_.find({generation_, key});
  if (found == incoming_.end()) return;
  if (current_ == &found->second) forget_current();
  incoming_.erase(found);
}

void TcpStream::withdraw_sent(const ExchangeKey& key) noexcept {
  std::erase_if(outgoing_, [&](Outgoing& one) {
    if (one.header.kind != FrameHeader::Kind::kMessage || one.header.key() != key) return false;
    one.withdrawn = true;
    one.bytes = {};
    const bool has_begun = &one == &outgoing_.front() && socket_.has_begun_to_send();
    return one.sent == 0 && !has_begun;
  });
}

void TcpStream::begin_generation(uint64_t generation) {
  generation_ = generation;
  std::erase_if(incoming_, [&](auto& entry) {
    if (entry.first.first >= generation) return false;
    if (current_ == &entry.second) forget_current();
    return true;
  });
}

void TcpStream::begin_message(const FrameHeader& header) {
  if (!header.is_sane()) {
    broken("what came is no message of a worker");
    return;
  }
  if (header.kind == FrameHeader::Kind::kGoodbye) {
    state_ = State::kEnded;
    return;
  }
  if (header.kind == FrameHeader::Kind::kRenew) {
    peer_generation_ = std::max(peer_generation_, header.generation);
    return;
  }
  header_ = header;
  got_ = 0;
  in_message_ = true;
  forget_current();
  if (header.generation >= generation_) {
    Incoming& message = incoming_[{header.generation, header.key()}];
    message.header = header;
    message.begun = true;
    // What differs from what is expected is not delivered.
    const bool fits = message.is_expected && message.expected == header.signature() &&
                      message.into.size() == header.bytes;
    if (!fits) message.kept.resize(header.bytes);
    current_ = &message;
    sink_ = fits ? message.into.data() : message.kept.data();
  }
  if (header.bytes == 0) end_message();
}

void TcpStream::end_message() {
  in_message_ = false;
  if (current_ != nullptr) current_->whole = true;
  forget_current();
}

// Looks at what is in the buffer. False: there is no more to be seen in it.
bool TcpStream::parse_some() {
  if (state_ != State::kOpen) return false;
  const std::size_t here = end_ - begin_;
  if (!in_message_) {
    if (here < sizeof(FrameHeader)) return false;
    FrameHeader header;
    std::memcpy(&header, buffer_.data() + begin_, sizeof header);
    begin_ += sizeof header;
    begin_message(header);
    return true;
  }
  if (here == 0) return false;
  const std::size_t bytes = std::min<std::size_t>(here, header_.bytes - got_);
  if (sink_ != nullptr) std::memcpy(sink_ + got_, buffer_.data() + begin_, bytes);
  begin_ += bytes;
  got_ += bytes;
  if (got_ == header_.bytes) end_message();
  return true;
}

// Returns what was read; 0 if there is nothing now, or never again.
ssize_t TcpStream::receive(std::byte* to, std::size_t bytes) {
  if (rings_) return static_cast<ssize_t>(rings_->from_peer.read({to, bytes}));
  if (carrier_) return fetch(to, bytes);
  std::string why;
  const ssize_t got = socket_.receive(to, bytes, &why);
  if (got < 0) broken(std::move(why));
  return std::max<ssize_t>(got, 0);
}

void TcpStream::read_some() {
  while (state_ == State::kOpen) {
    while (parse_some()) {
    }
    if (state_ != State::kOpen) return;
    if (begin_ == end_) begin_ = end_ = 0;
    // The bulk of a large message goes where it belongs without a stop.
    if (in_message_ && sink_ != nullptr && header_.bytes - got_ > kBufferBytes) {
      const ssize_t got = receive(sink_ + got_, header_.bytes - got_);
      if (got == 0) return;
      got_ += static_cast<std::size_t>(got);
      if (got_ == header_.bytes) end_message();
      continue;
    }
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
    }
    const std::size_t room = buffer_.size() - end_;
    const ssize_t got = receive(buffer_.data() + end_, room);
    if (got == 0) return;
    end_ += static_cast<std::size_t>(got);
    if (static_cast<std::size_t>(got) == room) continue;
    while (parse_some()) {
    }
    return;  // that was all there is now
  }
}

void TcpStream::end(const std::string& why) {
  if (carrier_) {
    const auto now = std::chrono::steady_clock::now();
    if (!carries_until_) carries_until_ = now + kCarriesOn;
    if (now < *carries_until_) return;
  }
  if (has_moved()) give_up(why);
}

void TcpStream::give_up(const std::string& why) {
  if (state_ != State::kOpen) return;
  read_some();
  if (state_ == State::kOpen) broken(why);
}

void TcpStream::say_goodbye() {
  send_plain(FrameHeader::Kind::kGoodbye, generation_);
  ::shutdown(socket_.fd(), SHUT_WR);
}

}  // namespace cohort::internal::collectives
