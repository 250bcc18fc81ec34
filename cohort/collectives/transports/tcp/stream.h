// SPDX-License-Identifier: Apache-2.0
//
// The messages between this rank and another one, in both directions, over one connection or, once
// both have moved there, through memory that they share or over MPI. Nothing here waits: it moves
// what can be moved, and says what is there.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cohort/collectives/transports/mpi/stream_carrier.h"
#include "cohort/collectives/transports/shared_memory/inbox.h"
#include "cohort/collectives/transports/tcp/socket.h"
#include "cohort/collectives/transports/tcp/wire.h"

namespace cohort::internal::collectives {

/// Threads: thread-compatible.
class TcpStream {
 public:
  enum class State {
    kOpen,
    kEnded,   ///< The peer has ended in good order.
    kBroken,  ///< It has not; why() says what was seen.
  };

  TcpStream(int peer, Socket socket);
  TcpStream(const TcpStream&) = delete;
  TcpStream& operator=(const TcpStream&) = delete;

  int peer() const { return peer_; }
  int fd() const { return socket_.fd(); }
  /// From now on messages take this way; none may be under way.
  void move_to(RingPair rings) { rings_ = rings; }
  void move_to(std::unique_ptr<StreamCarrier> carrier) { carrier_ = std::move(carrier); }
  bool has_moved() const { return rings_.has_value() || carrier_ != nullptr; }
  /// Whether a carrier has nothing left to send.
  bool has_sent_all() const { return carrier_ == nullptr || carrier_->has_sent_all(); }
  /// Bytes that a carrier has taken and brought so far.
  uint64_t carried() const { return carried_; }
  State state() const { return state_; }
  const std::string& why() const { return why_; }
  uint64_t generation() const { return generation_; }

  /// Sends after all that was sent before; `bytes` stay until is_sent() or withdraw_sent().
  void send(const ExchangeKey& key, const CallSignature& signature, ConstBytes bytes);
  void send_plain(FrameHeader::Kind kind, uint64_t generation);
  bool is_sent(const ExchangeKey& key) const;

  /// Where a message is to go. One that has come already stays where it is until take().
  void expect(const ExchangeKey& key, const CallSignature& signature, Bytes into);
  /// Whether it is here, or differs from what is expected, which take() throws.
  bool has_come(const ExchangeKey& key) const;
  /// What the peer says it is; of a message that has come.
  /// Errors: as check_same_signature() and check_same_length(), for `rank`'s call.
  void take(const ExchangeKey& key, const CallSignature& signature, int rank, Bytes into);

  /// Reads the memory that is sent no more: what was begun is filled up by zeros.
  void withdraw_sent(const ExchangeKey& key) noexcept;
  /// Writes the memory of who expects it no more.
  void withdraw_expected(const ExchangeKey& key) noexcept;

  /// The newest generation that the peer has come to.
  uint64_t peer_generation() const { return peer_generation_; }
  /// Forgets the messages of all generations before.
  void begin_generation(uint64_t generation);

  bool wants_to_write() const { return state_ == State::kOpen && !outgoing_.empty(); }
  void write_some();
  void read_some();
  /// The peer is gone: reads what it has left where both have moved to; there will be no more,
  /// but for what a carrier has under way, for a few seconds.
  void end(const std::string& why);
  /// The peer does not answer any more, though its connection is there.
  void give_up(const std::string& why);
  /// Says goodbye, as far as the peer reads; nothing may be sent after it.
  void say_goodbye();

 private:
  using Id = std::pair<uint64_t, ExchangeKey>;  // by generation
  struct Outgoing {
    FrameHeader header;
    ConstBytes bytes;
    std::size_t sent = 0;  // of header and bytes
    bool withdrawn = false;
    bool is_whole() const { return sent == sizeof header + header.bytes; }
  };
  struct Incoming {
    FrameHeader header = {};
    CallSignature expected = {};
    Bytes into = {};                   // of who expects it
    std::vector<std::byte> kept = {};  // where nobody did, or something else
    bool is_expected = false;
    bool begun = false;
    bool whole = false;
  };

  void broken(std::string why);
  void forget_current() { current_ = nullptr, sink_ = nullptr; }
  ssize_t transmit(std::span<iovec> parts);
  template <class Writer>
  static ssize_t write_parts(std::span<iovec> parts, Writer& to);
  ssize_t carry(std::span<iovec> parts);
  ssize_t fetch(std::byte* to, std::size_t bytes);
  ssize_t receive(std::byte* to, std::size_t bytes);
  bool parse_some();
  void begin_message(const FrameHeader& header);
  void end_message();

  const int peer_;
  Socket socket_;
  std::optional<RingPair> rings_;
  std::unique_ptr<StreamCarrier> carrier_;
  uint64_t carried_ = 0;
  std::optional<std::chrono::steady_clock::time_point> carries_until_;  // what the peer had sent
  State state_ = State::kOpen;
  std::string why_;
  uint64_t generation_ = 0;
  uint64_t peer_generation_ = 0;
  std::deque<Outgoing> outgoing_;
  std::map<Id, Incoming> incoming_;

  // What has been read and not been looked at: buffer_[begin_, end_).
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  // The message that is being read.
  bool in_message_ = false;
  FrameHeader header_ = {};
  std::size_t got_ = 0;          // of its bytes
  std::byte* sink_ = nullptr;    // null: nobody wants it
  Incoming* current_ = nullptr;  // null: nobody wants it
};

}  // namespace cohort::internal::collectives
