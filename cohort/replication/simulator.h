// SPDX-License-Identifier: Apache-2.0
//
// Replicated servers, their membership service and clients in one thread, under a network and
// clocks that a seed makes: messages are lost, late, in another order and twice; nodes die, are
// started anew, stand still and are cut off; clocks go at different paces. The same seed gives the
// same run.
//
//   const Outcome outcome = Simulation<>(seed).run();   // outcome.wrong: empty, or what is wrong
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"
#include "cohort/replication/client.h"
#include "cohort/replication/history.h"
#include "cohort/replication/membership.h"
#include "cohort/replication/replica.h"

namespace cohort::internal::replication {

/// Numbers of updates in the order in which they were applied; an update's result is its place.
/// A snapshot has `padding` bytes more, as of a large state.
class ListState final : public ReplicatedState {
 public:
  explicit ListState(std::size_t padding = 0) : padding_(padding) {}
  std::string apply(const Bytes& update) override {
    list_ += update.str();
    return std::to_string(list_.size() / kUpdateBytes);
  }
  std::string read(const std::string& /*query*/) const override { return list_; }
  std::shared_ptr<const StateSnapshot> snapshot() override {
    return std::make_shared<Frozen>(list_ + std::string(padding_, 'x'));
  }
  void restore(std::vector<Bytes> pieces) override {
    list_.clear();
    for (const Bytes& each : pieces) list_ += each.str();
    list_.resize(list_.size() - padding_);
  }

 private:
  struct Frozen final : StateSnapshot {
    explicit Frozen(std::string given) : all(std::move(given)) {}
    uint64_t size() const override { return all.size(); }
    std::string bytes(uint64_t first, uint64_t count) const override {
      return all.substr(first, count);
    }
    std::string all;
  };
  const std::size_t padding_;
  std::string list_;
};

/// kStorms: what can happen does. kBusy: states are large, updates come all the time, and servers
/// die now and then: who is started again has to be a backup soon, while updates go on.
enum class World { kStorms, kBusy };

struct Outcome {
  std::string wrong = {};  ///< Empty: all is as promised.
  bool is_lost = false;    ///< All keepers of the state have died.
  int updates = 0;         ///< That were acknowledged.
  int reads = 0;
  int epochs = 0;
};

/// `ReplicaType` and `MembershipType`: the real ones, or ones with a bug.
template <class ReplicaType = Replica, class MembershipType = Membership>
class Simulation {
 public:
  explicit Simulation(uint64_t seed, bool is_traced = false, World world = World::kStorms)
      : random_(seed),
        is_traced_(is_traced),
        is_busy_(world == World::kBusy),
        grace_(seed % 2 == 0 ? kResend * 3 : Time::max()) {
    membership_ =
        std::make_unique<MembershipType>(MembershipOptions{.lease = kLease, .clock_drift = kDrift});
    add_node(kMembership);
    climate_ = chance(60) ? Climate::kMixed : chance(50) ? Climate::kIsolating : Climate::kDeadly;
    backups_ = 1 + pick(2);
    patience_ = Time(chance(50) ? 90'000 : 250'000);
    if (is_busy_) {
      patience_ = Time(400'000);
      padding_ = 8'000 + pick(24'000);
      log_bytes_ = chance(50) ? 64 * sizeof(Entry) : 4'096 * sizeof(Entry);
    }
    for (std::size_t i = 0; i < backups_ + (is_busy_ ? 1 : 2); ++i) start_replica();
    for (NodeId id = kFirstClient; id < kFirstClient + 3; ++id) {
      Node& node = add_node(id);
      node.client = std::make_unique<Client>(
          ClientOptions{.id = id, .membership = kMembership, .resend = kResend * 2});
    }
  }

  Outcome run() {
    try {
      change_weather_at_ = 300'000;  // they find each other in peace
      if (is_busy_) run_busy();
      while (!is_busy_ && now_ < kStorm) step();
      heal();
      is_calm_ = true;
      out_.is_lost = !is_kept();
      const int64_t limit = now_ + kCalm;
      while (now_ < limit && !is_done() && !out_.is_lost) step();
      // A proposal that was on its way may have let go of the last who had the state.
      out_.is_lost = out_.is_lost || (!is_done() && !is_kept());
      if (!is_done() && !out_.is_lost && out_.wrong.empty()) out_.wrong = "clients wait for ever";
    } catch (const Error& e) {
      out_.wrong = e.what();
    }
    if (out_.wrong.empty()) out_.wrong = history_.first_violation(!out_.is_lost);
    out_.updates = history_.acknowledged_updates();
    out_.reads = history_.answered_reads();
    out_.epochs = static_cast<int>(membership_->configuration().epoch);
    return out_;
  }

 private:
  static constexpr NodeId kMembership = 1;
  static constexpr NodeId kFirstReplica = 10;
  static constexpr NodeId kFirstClient = 1000;
  static constexpr double kDrift = 0.25;
  static constexpr Time kLease{400'000};
  static constexpr Time kResend{40'000};
  static constexpr int64_t kTick = 20'000;  // microseconds of the world
  static constexpr int64_t kStorm = 2'500'000;
  static constexpr int64_t kCalm = 6'000'000;
  static constexpr int kOperations = 16;  // of a client
  static constexpr int64_t kBusyTick = 500;
  static constexpr int64_t kSoon = 4'000'000;  // many times what a snapshot takes
  static constexpr uint64_t kBusyOpen = 12;

  enum class Climate { kMixed, kIsolating, kDeadly };
  struct Node {
    NodeId id = 0;
    double pace = 1;
    int64_t offset = 0;
    int64_t stopped_until = 0;
    std::unique_ptr<ReplicaType> replica = {};
    std::unique_ptr<Client> client = {};
    int operations = 0;
    std::map<uint64_t, std::size_t> open = {};  // where the operation of a ticket is in the history
  };
  struct Event {
    int64_t at = 0;
    uint64_t order = 0;
    NodeId to = 0;
    NodeId from = 0;
    std::shared_ptr<const Message> message = {};  // null: time passes
    bool operator<(const Event& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };

  uint64_t pick(uint64_t below) { return random_() % below; }
  bool chance(uint64_t percent) { return pick(100) < percent; }

  Node& add_node(NodeId id) {
    Node& node = nodes_[id];
    node.id = id;
    const double most = 1 + kDrift;
    node.pace = chance(50) ? 1 : chance(50) ? most : 1 / most;
    node.offset = static_cast<int64_t>(pick(1'000'000'000));
    push({.at = now_ + static_cast<int64_t>(pick(kTick)), .to = id});
    return node;
  }
  void start_replica() {
    const NodeId id = kFirstReplica + started_++;
    Node& node = add_node(id);
    ReplicaOptions options;
    options.id = id;
    options.membership = kMembership;
    options.backups = backups_;
    options.lease = kLease;
    options.heartbeat = kResend;
    options.resend = kResend;
    options.patience = patience_;
    options.grace = grace_;
    options.kept_entries = 4;
    options.sent_entries = is_busy_ ? 32 : 3;
    options.log_bytes = log_bytes_;
    options.piece_bytes = is_busy_ ? 256 : 12;
    options.pieces = 4;
    node.replica = std::make_unique<ReplicaType>(options, std::make_unique<ListState>(padding_));
    say(id, "starts");
  }
  Time clock_of(const Node& node) const {
    return Time(node.offset + static_cast<int64_t>(static_cast<double>(now_) * node.pace));
  }
  void push(Event event) {
    event.order = ++order_;
    events_.push(std::move(event));
  }

  void step() {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    if (!is_calm_ && !is_busy_ && now_ >= change_weather_at_) change_weather();
    const auto found = nodes_.find(event.to);
    if (found == nodes_.end()) return;  // it has died
    Node& node = found->second;
    if (node.stopped_until > now_) {
      Event later = event;
      later.at = node.stopped_until;
      return push(std::move(later));
    }
    if (event.message == nullptr) {
      pass_time(node);
      push(
          {.at = now_ + (is_busy_ && !is_calm_ && node.client ? kBusyTick : kTick), .to = node.id});
    } else {
      hear(node, event);
    }
    collect(node);
  }
  void pass_time(Node& node) {
    const Time clock = clock_of(node);
    if (node.replica) node.replica->advance(clock);
    if (node.id == kMembership) membership_->advance(clock);
    if (!node.client) return;
    node.client->advance(clock);
    ask_something(node, clock);
  }
  // Two of three servers' deaths, one after the other, each when all is whole again.
  void run_busy() {
    for (int death = 0; death < 3; ++death) {
      const int64_t limit = now_ + kSoon;
      while (now_ < limit && !is_whole()) step();
      if (!is_whole()) {
        out_.wrong = "who was started again is no backup, while updates go on";
        return;
      }
      for (const int64_t until = now_ + 100'000; now_ < until;) step();
      loss_ = pick(5);
      const Configuration& now = membership_->configuration();
      if (death < 2) kill(chance(50) || now.backups.empty() ? now.primary : now.backups.front());
    }
  }
  bool is_whole() const {
    const Configuration& now = membership_->configuration();
    const auto lives = [&](NodeId id) { return nodes_.count(id) > 0; };
    return now.backups.size() >= backups_ && lives(now.primary) &&
           std::all_of(now.backups.begin(), now.backups.end(), lives);
  }
  void ask_more(Node& node, Time clock) {
    if (node.client->open() >= kBusyOpen || !chance(90)) return;
    if (chance(98)) {
      const std::size_t operation = history_.begin_update(now_);
      node.open[node.client->update(history_.bytes_of(operation), clock)] = operation;
    } else {
      node.open[node.client->read("", clock)] = history_.begin_read(now_);
    }
  }
  void ask_something(Node& node, Time clock) {
    if (is_busy_ && !is_calm_) return ask_more(node, clock);
    // At the end each looks once more, when all the rest is over.
    const bool is_last = node.operations == kOperations;
    const bool is_time = is_last ? is_calm_ && all_asked() : chance(is_calm_ ? 90 : 15);
    if (!is_time || node.operations > kOperations || node.client->open() > (is_last ? 0 : 1))
      return;
    ++node.operations;
    if (!is_last && chance(60)) {
      const std::size_t operation = history_.begin_update(now_);
      node.open[node.client->update(history_.bytes_of(operation), clock)] = operation;
    } else {
      node.open[node.client->read("", clock)] = history_.begin_read(now_);
    }
  }
  bool all_asked() const {
    for (const auto& [id, node] : nodes_) {
      if (!node.client) continue;
      if (node.operations < kOperations) return false;
      if (node.operations == kOperations && node.client->open() > 0) return false;
    }
    return true;
  }
  bool is_done() const {
    for (const auto& [id, node] : nodes_) {
      if (node.client && (node.operations <= kOperations || node.client->open() > 0)) return false;
    }
    return true;
  }

  void hear(Node& node, const Event& event) {
    const Time clock = clock_of(node);
    if (is_traced_) say(node.id, str_cat("hears ", text_of(*event.message), " of ", event.from));
    if (node.replica) {
      node.replica->receive(event.from, *event.message, clock);
    } else if (node.client) {
      node.client->receive(event.from, *event.message, clock);
    } else {
      membership_->receive(event.from, *event.message, clock);
    }
  }
  void collect(Node& node) {
    std::vector<Outgoing> out = node.replica  ? node.replica->take_messages()
                                : node.client ? node.client->take_messages()
                                              : membership_->take_messages();
    for (Outgoing& each : out) send(node.id, std::move(each));
    if (node.replica && node.replica->is_primary() &&
        node.replica->log_bytes() > log_bytes_ + 16 * sizeof(Entry)) {
      out_.wrong = "a log grows beyond its bound";
    }
    if (!node.client) return;
    for (const Client::Result& each : node.client->take_results()) {
      history_.end(node.open.at(each.ticket), now_, each.text);
    }
  }

  void send(NodeId from, Outgoing outgoing) {
    if (cut_.count({from, outgoing.to}) > 0) return;
    const auto message = std::make_shared<const Message>(std::move(outgoing.message));
    int copies = chance(loss_) ? 0 : 1;
    if (!is_calm_ && chance(5)) ++copies;
    for (; copies > 0; --copies) {
      const bool is_late = !is_calm_ && chance(3);
      const auto delay = static_cast<int64_t>(is_late ? pick(600'000) : 500 + pick(4'000));
      push({.at = now_ + delay, .to = outgoing.to, .from = from, .message = message});
    }
  }

  // What happens to them

  NodeId some_replica() {
    std::vector<NodeId> all;
    for (const auto& [id, node] : nodes_) {
      if (node.replica) all.push_back(id);
    }
    // Those that the state hangs on are more worth it.
    const Configuration& now = membership_->configuration();
    if (chance(50) && nodes_.count(now.primary) > 0) return now.primary;
    return all[pick(all.size())];
  }
  /// Whether somebody has the state and may lead.
  bool is_kept(NodeId without = 0) const {
    const Configuration& now = membership_->configuration();
    const auto lives = [&](NodeId id) { return id != without && nodes_.count(id) > 0; };
    return lives(now.primary) || std::any_of(now.backups.begin(), now.backups.end(), lives);
  }
  void heal() {
    cut_.clear();
    loss_ = 0;
    say(0, "all is well");
  }
  void change_weather() {
    const int64_t least = climate_ == Climate::kIsolating ? 400'000 : 50'000;
    change_weather_at_ = now_ + least + static_cast<int64_t>(pick(350'000));
    const NodeId one = some_replica();
    switch (climate_) {
      case Climate::kIsolating:
        return cut_.empty() ? isolate(membership_->configuration().primary) : heal();
      case Climate::kDeadly:
        return chance(70) ? kill(one) : cut(one, some_replica());
      case Climate::kMixed:
        break;
    }
    switch (pick(9)) {
      case 0:
      case 1:
        return heal();
      case 2:
        loss_ = pick(40);
        return say(0, str_cat("loses ", loss_, " % of all messages"));
      case 3:
        return cut(one, some_replica());
      case 4:
        return cut(one, kMembership);
      case 5:
        for (const auto& [id, node] : nodes_) cut(one, id);
        return;
      case 6:
        return isolate(one);
      case 7:
        nodes_[one].stopped_until = now_ + static_cast<int64_t>(pick(900'000));
        return say(one, "stands still");
      default:
        return kill(one);
    }
  }
  // Only clients reach it.
  void isolate(NodeId one) {
    for (const auto& [id, node] : nodes_) {
      if (!node.client) cut_.insert({{one, id}, {id, one}});
    }
    say(one, "is heard by clients alone");
  }
  void kill(NodeId one) {
    if (nodes_.count(one) == 0 || (!is_kept(one) && !chance(5))) return;
    say(one, "dies");
    nodes_.erase(one);
    if (chance(50)) membership_->has_died(one);
    start_replica();
  }
  // One way, the other one, or both.
  void cut(NodeId a, NodeId b) {
    const uint64_t ways = 1 + pick(3);
    if ((ways & 1) != 0) cut_.insert({a, b});
    if ((ways & 2) != 0) cut_.insert({b, a});
    say(a, str_cat("is cut off from ", b, ", ways ", ways));
  }

  void say(NodeId who, const std::string& what) const {
    if (!is_traced_) return;
    std::printf("%8.3f ms  %llu %s\n", static_cast<double>(now_) / 1000,
                static_cast<unsigned long long>(who), what.c_str());
  }
  static std::string text_of(const Message& message) {
    static constexpr const char* kNames[] = {
        "Heartbeat", "HeartbeatAnswer", "Proposal",      "Ask",           "Configured",
        "Append",    "Appended",        "SnapshotPiece", "SnapshotTaken", "Join",
        "Update",    "Updated",         "Read",          "ReadAnswer"};
    std::string out = kNames[message.index()];
    if (const auto* m = std::get_if<Append>(&message)) {
      out += str_cat(" epoch ", m->epoch, " behind ", m->previous, ": ", m->entries.size(),
                     ", committed ", m->committed);
    } else if (const auto* appended = std::get_if<Appended>(&message)) {
      out += str_cat(" epoch ", appended->epoch, appended->is_refused ? " refused " : " until ",
                     appended->last);
    } else if (const auto* piece = std::get_if<SnapshotPiece>(&message)) {
      out += str_cat(" ", piece->place, " of ", piece->count, " behind ", piece->index);
    } else if (const auto* configured = std::get_if<Configured>(&message)) {
      out += str_cat(" epoch ", configured->configuration.epoch, " primary ",
                     configured->configuration.primary);
    }
    return out;
  }

  std::mt19937_64 random_;
  const bool is_traced_;
  const bool is_busy_;
  std::size_t padding_ = 0;
  std::size_t log_bytes_ = std::size_t{1} << 20;
  int64_t now_ = 0;
  uint64_t order_ = 0;
  std::priority_queue<Event> events_;
  std::map<NodeId, Node> nodes_;
  std::unique_ptr<MembershipType> membership_;
  Climate climate_ = Climate::kMixed;
  std::size_t backups_ = 1;
  Time patience_ = {};
  const Time grace_;
  NodeId started_ = 0;
  std::set<std::pair<NodeId, NodeId>> cut_;
  uint64_t loss_ = 0;
  bool is_calm_ = false;
  int64_t change_weather_at_ = 0;
  History history_;
  Outcome out_;
};

}  // namespace cohort::internal::replication
