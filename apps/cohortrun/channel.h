// SPDX-License-Identifier: Apache-2.0
//
// Messages between the cohortrun of two hosts, over a connection or over the pipes of an ssh.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cohort/rpc/tls.h"

namespace cohortrun {

/// What a message is about. On the wire: the letter, the number of bytes, a new line, the bytes.
enum class Kind : char {
  kHello = 'H',    ///< To the head: who I am (JSON).
  kRefuse = 'R',   ///< From the head: why not.
  kJob = 'J',      ///< From the head over ssh: the program and how to run it (JSON).
  kPrepare = 'P',  ///< From the head: choose ports for the next attempt (how many).
  kReady = 'A',    ///< To the head: host and ports (JSON).
  kStart = 'S',    ///< From the head: a NodePlan.
  kOutput = 'O',   ///< To the head over ssh: "process stream", a new line, what it wrote.
  kEnded = 'E',    ///< To the head: a process and its status (JSON).
  kAgain = 'T',    ///< From the head: start this task alone once more (JSON).
  kPause = 'W',    ///< From the head: "1", read nothing of what tasks write; "0", go on.
  kEnd = 'K',      ///< From the head: pass this signal on, and kill when the grace is over.
  kBye = 'B',      ///< From the head: the job is over, with this exit code.
  kBroken = 'X',   ///< To the head: this cohortrun cannot go on, and why.
};

struct Message {
  Kind kind = Kind::kHello;
  std::string body = {};
};

class Channel {
 public:
  static constexpr std::size_t kLongestBody = std::size_t{1} << 20;

  /// Owns both, which may be one and the same.
  Channel(int in, int out);
  /// Over a connection, whose other side is proved before any message.
  Channel(int socket, const cohort::internal::rpc::TlsContext& tls,
          cohort::internal::rpc::TlsSide side, const std::string& host = {});
  ~Channel();
  Channel(Channel&& other) noexcept;
  Channel& operator=(Channel&& other) noexcept;

  int fd() const { return in_; }  ///< -1 after its end.
  bool is_open() const { return in_ >= 0; }
  void close();
  /// Blocks: while the other one does not read, `limit` at most; then the channel is closed.
  void send(Kind kind, std::string_view body, std::chrono::seconds limit);
  /// Reads what is there; closes the channel at its end, and when it is no message.
  void read();
  /// Lines before the first message that are none (what a login shell says) are left out.
  void skip_noise() { skip_noise_ = true; }
  /// The next message that was read.
  std::optional<Message> next();
  /// What ended it, where that was no more than its end.
  const std::string& why() const { return why_; }

 private:
  ssize_t send_some(std::string_view bytes);
  ssize_t read_some(char* to, std::size_t bytes);
  void wait_to_send();

  int in_;
  int out_;
  std::unique_ptr<cohort::internal::rpc::TlsSession> tls_;
  std::string why_;
  bool skip_noise_ = false;
  std::string unread_;
};

}  // namespace cohortrun
