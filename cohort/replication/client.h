// SPDX-License-Identifier: Apache-2.0
//
// Who asks a replicated server: it finds the primary, asks again until it has an answer, and
// numbers its updates, so that each is applied once. A machine of states without threads, sockets
// or a clock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cohort/replication/messages.h"

namespace cohort::internal::replication {

struct ClientOptions {
  NodeId id = 0;
  NodeId membership = 0;
  Time resend = {};  ///< What has no answer.
};

/// Threads: thread-compatible.
class Client {
 public:
  struct Result {
    uint64_t ticket = 0;
    std::string text = {};
  };
  explicit Client(ClientOptions options) : options_(options) {}

  /// Returns the ticket of the result.
  uint64_t update(std::string bytes, Time now);
  uint64_t read(std::string query, Time now);

  void receive(NodeId from, const Message& message, Time now);
  void advance(Time now);
  std::vector<Outgoing> take_messages() { return std::exchange(outgoing_, {}); }
  std::vector<Result> take_results() { return std::exchange(results_, {}); }
  std::size_t open() const { return updates_.size() + reads_.size(); }

 private:
  struct Sent {
    std::string text = {};
    uint64_t ticket = 0;
    Time due = {};  // is sent again then
  };
  void send_update(uint64_t sequence, Sent& sent, Time now);
  void send_read(uint64_t ticket, Sent& sent, Time now);
  void adopt(const Configuration& configuration, Time now);
  void finish(std::map<uint64_t, Sent>& of, uint64_t key, const std::string& text);

  const ClientOptions options_;
  Configuration configuration_;
  uint64_t tickets_ = 0;
  uint64_t sequence_ = 0;
  std::map<uint64_t, Sent> updates_;  // by sequence
  std::map<uint64_t, Sent> reads_;    // by ticket
  std::vector<Outgoing> outgoing_;
  std::vector<Result> results_;
};

}  // namespace cohort::internal::replication
