// SPDX-License-Identifier: Apache-2.0
//
// Decides who keeps a replicated state: one configuration follows another, each with the next
// epoch. It is kept by the launcher or the chief, not by the program that trains, so a primary that
// dies is replaced while that is down. A machine of states without threads, sockets or a clock.
//
// A primary may answer reads by itself while its lease lasts, which it counts from the moment it
// sent a heartbeat, by its own clock. Another one is promoted when that lease has ended by the
// slowest clock that is allowed.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "cohort/replication/messages.h"

namespace cohort::internal::replication {

struct MembershipOptions {
  Time lease = {};
  double clock_drift = 0;  ///< A second of any clock takes between 1 / (1 + this) and 1 + this.
};

/// Threads: thread-compatible.
class Membership {
 public:
  explicit Membership(MembershipOptions options) : options_(options) {}
  virtual ~Membership() = default;

  /// The first node that is heard of is the first primary.
  void receive(NodeId from, const Message& message, Time now);
  /// Time has passed: a primary that was not heard of is replaced.
  void advance(Time now);
  /// The launcher has seen the node's process end: nobody waits for its lease.
  void has_died(NodeId node);
  std::vector<Outgoing> take_messages();
  const Configuration& configuration() const { return configuration_; }

 protected:
  /// From a node's last heartbeat on, until nobody counts on it any more.
  virtual Time patience() const;
  const MembershipOptions options_;

 private:
  bool is_alive(NodeId node, Time now) const;
  void change(Configuration next);

  Configuration configuration_;
  std::map<NodeId, Time> heard_;
  std::set<NodeId> dead_;
  std::vector<Outgoing> outgoing_;
};

}  // namespace cohort::internal::replication
