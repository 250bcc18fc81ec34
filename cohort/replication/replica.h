// SPDX-License-Identifier: Apache-2.0
//
// One keeper of a replicated state: a primary, a backup, or a spare that would like to be one. A
// machine of states without threads, sockets or a clock, which a simulator runs through as well.
//
//   Replica replica(options, std::move(state));
//   replica.receive(from, message, now);  replica.advance(now);
//   for (const Outgoing& each : replica.take_messages()) ...   // send it
//
// The primary puts updates into its log and sends them to all backups. What all of them have is
// committed: it is applied, by which it can be read, and then its client is told. Who does not
// acknowledge is dropped by a new epoch; who acknowledges a new epoch's messages refuses those of
// older ones, and so fences their primary.
//
// Who comes back gets a snapshot in pieces, each of which is asked for again alone, while updates
// go on; the log is kept from the snapshot's place on, and where that grows beyond its bound,
// updates wait. From the moment on when it has caught up, updates wait for its acknowledgements,
// so that it is even with the others at some time, however fast updates come.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/replication/log.h"
#include "cohort/replication/messages.h"

namespace cohort::internal::replication {

/// A state as it was, while updates go on. The same bytes whenever they are asked for.
class StateSnapshot {
 public:
  virtual ~StateSnapshot() = default;
  virtual uint64_t size() const = 0;
  /// Of [first, first + count), which lies in it.
  virtual std::string bytes(uint64_t first, uint64_t count) const = 0;
};

/// What is replicated. The same updates in the same order give the same state everywhere: rates and
/// steps that updates are to be done with stand in them.
class ReplicatedState {
 public:
  virtual ~ReplicatedState() = default;
  /// Returns what the client gets. What cannot be done has a result that says so.
  /// Errors: of this copy alone, such as no memory; it is not to be trusted any more.
  virtual std::string apply(const Bytes& update) = 0;
  virtual std::string read(const std::string& query) const = 0;
  /// Cost: small, whatever the state's size; nobody beats for this node meanwhile.
  virtual std::shared_ptr<const StateSnapshot> snapshot() = 0;
  /// The snapshot's bytes, in pieces as they came.
  virtual void restore(std::vector<Bytes> pieces) = 0;
};

struct ReplicaOptions {
  NodeId id = 0;
  NodeId membership = 0;
  std::size_t backups = 1;          ///< As many as there are spares for.
  Time lease = {};                  ///< As the membership service has it.
  Time heartbeat = {};              ///< How often it hears of this node.
  Time resend = {};                 ///< What has no answer.
  Time patience = {};               ///< Until a backup that does not acknowledge is dropped.
  Time grace = Time::max();         ///< The same of a primary that was replaced, if it is less.
  std::size_t kept_entries = 1024;  ///< Of those applied, for backups that are behind.
  std::size_t kept_bytes = std::size_t{16} << 20;
  std::size_t sent_entries = 64;  ///< The most of one message, which has at least one.
  std::size_t sent_bytes = std::size_t{4} << 20;
  std::size_t ahead_bytes = std::size_t{32} << 20;  ///< That one backup has not acknowledged.
  std::size_t log_bytes = std::size_t{128} << 20;   ///< Beyond it updates wait.
  std::size_t piece_bytes = std::size_t{1} << 20;   ///< Of a snapshot,
  uint64_t pieces = 8;                              ///< so many of which are on their way.
  std::size_t window = 4096;                        ///< Results that are kept for one client.
};

/// Threads: thread-compatible.
class Replica {
 public:
  Replica(ReplicaOptions options, std::unique_ptr<ReplicatedState> state);
  virtual ~Replica() = default;
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  /// Errors: Internal for what no sequence of messages of this protocol can bring about.
  void receive(NodeId from, const Message& message, Time now);
  /// A backup applies here what is committed: whoever sends what receive() has left before does not
  /// let the primary wait for that.
  void advance(Time now);
  std::vector<Outgoing> take_messages();

  bool is_primary() const { return role_ == Role::kPrimary; }
  Epoch epoch() const { return epoch_; }
  /// The last one that it has heard of.
  const Configuration& configuration() const { return configuration_; }
  Index committed() const { return committed_; }
  /// The last entry of its log.
  Index last() const { return log_.last(); }
  /// Whether a new update is taken; one that comes all the same is left, and asked for again.
  virtual bool has_room() const { return log_.bytes() < options_.log_bytes; }
  std::size_t log_bytes() const { return log_.bytes(); }

 protected:
  // Each is a decision on which the promises rest. Tests make them wrong one by one, to see that
  // the simulator finds it.
  /// Whether a message of this epoch comes from a primary that has been replaced.
  virtual bool is_fenced(Epoch epoch) const { return epoch < epoch_; }
  /// Whose acknowledgements an update needs.
  virtual std::vector<NodeId> required() const;
  /// The last entry that all of them have.
  virtual Index acknowledged() const;
  /// The last entry that may be applied, which makes it readable.
  virtual Index readable() const { return committed_; }
  virtual bool has_lease(Time now) const { return now < lease_end_; }
  /// The membership service heard of this node when the heartbeat was sent, or later.
  virtual Time lease_begin(const HeartbeatAnswer& answer, Time /*now*/) const {
    return answer.sent;
  }
  /// Whether all that the primary before may have acknowledged can be read here.
  virtual bool has_recovered() const { return committed_ >= inherited_; }
  /// The last entry that may have been acknowledged: who may be promoted has to have it.
  virtual Index owed() const { return std::max(committed_, inherited_); }
  /// What is behind it may be asked for by somebody who has the snapshot of it.
  virtual Index kept_from() const;
  /// Whether updates wait for one that has nearly caught up.
  virtual bool waits_for_candidate() const { return true; }
  /// Whether the update was applied before; its result, if that is still kept.
  virtual std::optional<std::string> result_of(const Command& command) const;

  const ReplicaOptions options_;
  Log log_;
  Index committed_ = 0;
  Index inherited_ = 0;  // the end of a primary's log when it was promoted

 private:
  enum class Role { kSpare, kBackup, kPrimary };
  struct Follower {
    Index next = 1;     // is sent next
    Index matched = 0;  // has all up to it, in this epoch
    Index begun = 0;    // behind it is what was sent in this epoch
    Index target = 0;   // has caught up when it has this one
    Index kept = 0;     // what is behind it is not forgotten; 0: nothing known
    bool has_answered = false;
    bool is_silent = false;  // one message at a time, until it answers
    Time heard = {};
    Time sent = {};
    Time wait = {};  // until it is sent again
  };
  // A snapshot on its way to a follower, one at a time.
  struct Transfer {
    uint64_t number = 0;
    Index index = 0;
    Epoch index_epoch = 0;
    std::shared_ptr<const StateSnapshot> state = {};
    Applied applied = {};
    uint64_t count = 1;  // pieces
    uint64_t taken = 0;
    uint64_t sent = 0;
    uint64_t window = 1;  // grows with what arrives
    bool has_more() const { return sent < count && sent < taken + window; }
  };
  // The same where it comes to.
  struct Incoming {
    NodeId from = 0;
    uint64_t number = 0;
    uint64_t taken = 0;
    std::map<uint64_t, Bytes> pieces = {};
    Applied applied = {};
  };

  template <class M>
  void on(NodeId /*from*/, const M& /*message*/) {}  // not for replicas
  void on(NodeId from, const HeartbeatAnswer& answer);
  void on(NodeId from, const Configured& configured);
  void on(NodeId from, const Append& append);
  void on(NodeId from, const Appended& appended);
  void on(NodeId from, const SnapshotPiece& piece);
  void on(NodeId from, const SnapshotTaken& taken);
  void on(NodeId from, const Join& join);
  void on(NodeId from, const Update& update);
  void on(NodeId from, const Read& read);

  void send(NodeId to, Message message) { outgoing_.push_back({to, std::move(message)}); }
  void adopt(const Configuration& configuration);
  void lead(bool is_promoted, NodeId primary_before);
  void follow(Epoch epoch);
  Follower new_follower() const;
  void ship(NodeId to, Follower& follower);
  void ship_entries(NodeId to, Follower& follower);
  void begin_transfer(NodeId to, Follower& follower);
  void ship_pieces(NodeId to, Transfer& transfer);
  bool has_more_for(NodeId node, const Follower& follower) const;
  void go_back(NodeId node, Follower& follower);
  void step_back(NodeId node, Follower& follower, Index last);
  void restore(const SnapshotPiece& last);
  bool is_close(NodeId node) const;
  void trim();
  void ship_to_all();
  void commit();
  void apply_committed();
  bool is_forgotten(const Command& command) const;
  void propose(std::vector<NodeId> backups);
  void look_after_followers();
  void add_candidate();

  std::unique_ptr<ReplicatedState> state_;
  Applied applied_;
  Index applied_until_ = 0;
  Role role_ = Role::kSpare;
  Epoch epoch_ = 0;  // the highest that has been heard of
  Configuration configuration_;
  Time now_ = {};
  Time heartbeat_due_ = {};
  Time resend_due_ = {};
  Time lease_end_ = {};
  // A primary's:
  std::map<NodeId, Follower> followers_;
  std::map<NodeId, Transfer> transfers_;
  uint64_t transfers_made_ = 0;
  NodeId candidate_ = 0;  // a follower that is to be a backup
  std::optional<Configuration> proposal_;
  std::map<std::pair<uint64_t, uint64_t>, Index> pending_;  // by client and sequence
  std::map<Index, NodeId> waiting_;                         // who is told
  std::optional<Incoming> incoming_;
  std::vector<Outgoing> outgoing_;
};

}  // namespace cohort::internal::replication
