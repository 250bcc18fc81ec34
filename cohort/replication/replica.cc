// SPDX-License-Identifier: Apache-2.0
#include "cohort/replication/replica.h"

#include <algorithm>
#include <iterator>

namespace cohort::internal::replication {
namespace {

// Before a backup is dropped it has been asked so often, and more.
constexpr int kTriesOfPatience = 4;
// On their way to one backup.
constexpr std::size_t kAheadMessages = 4;

}  // namespace

Replica::Replica(ReplicaOptions options, std::unique_ptr<ReplicatedState> state)
    : options_(options), state_(std::move(state)) {}

void Replica::receive(NodeId from, const Message& message, Time now) {
  now_ = now;
  std::visit([&](const auto& m) { on(from, m); }, message);
}

void Replica::advance(Time now) {
  now_ = now;
  if (now >= heartbeat_due_) {
    heartbeat_due_ = now + options_.heartbeat;
    send(options_.membership, Heartbeat{now});
  }
  if (role_ == Role::kPrimary) {
    ship_to_all();
    look_after_followers();
    trim();
  } else {
    apply_committed();
  }
  if (now < resend_due_) return;
  resend_due_ = now + options_.resend;
  if (role_ == Role::kPrimary && proposal_) send(options_.membership, Proposal{*proposal_});
  const NodeId primary = configuration_.primary;
  if (role_ == Role::kSpare && primary != 0 && primary != options_.id) send(primary, Join{});
}

std::vector<Outgoing> Replica::take_messages() { return std::exchange(outgoing_, {}); }

// Who this node is

void Replica::on(NodeId /*from*/, const HeartbeatAnswer& answer) {
  adopt(answer.configuration);
  const Configuration& now = answer.configuration;
  if (now.epoch == epoch_ && now.primary == options_.id) {
    lease_end_ = std::max(lease_end_, lease_begin(answer, now_) + options_.lease);
  }
}

void Replica::on(NodeId /*from*/, const Configured& configured) { adopt(configured.configuration); }

void Replica::adopt(const Configuration& configuration) {
  if (configuration.epoch < epoch_ || configuration.epoch <= configuration_.epoch) return;
  const bool led = role_ == Role::kPrimary;
  const NodeId before = configuration_.primary;
  configuration_ = configuration;
  if (configuration.primary != options_.id) {
    follow(configuration.epoch);
    role_ = configuration.has_backup(options_.id) ? Role::kBackup : Role::kSpare;
    return;
  }
  epoch_ = configuration.epoch;
  lead(!led, before);
}

Replica::Follower Replica::new_follower() const {
  return {.next = log_.last() + 1,
          .begun = log_.last(),
          .target = log_.last(),
          .heard = now_,
          .wait = options_.resend};
}

// Who acknowledged what in an older epoch is asked anew: so much is simple to be sure of. What has
// arrived of a snapshot stays there, for the same primary sends the same bytes.
void Replica::lead(bool is_promoted, NodeId primary_before) {
  role_ = Role::kPrimary;
  proposal_.reset();
  incoming_.reset();
  if (is_promoted) {
    inherited_ = log_.last();
    candidate_ = 0;
    for (Index i = applied_until_ + 1; i <= log_.last(); ++i) {
      const Command& command = log_.at(i).command;
      pending_[{command.client, command.sequence}] = i;
    }
  }
  if (configuration_.has_backup(candidate_)) candidate_ = 0;
  std::vector<NodeId> nodes = configuration_.backups;
  if (candidate_ != 0) nodes.push_back(candidate_);
  std::map<NodeId, Follower> followers;
  for (const NodeId node : nodes) {
    Follower& fresh = followers[node] = new_follower();
    if (const auto known = followers_.find(node); known != followers_.end()) {
      fresh.kept = known->second.kept;
    }
    // Nobody has heard of it for a lease, so it is not waited for as long as others.
    if (is_promoted && node == primary_before && options_.grace < options_.patience) {
      fresh.heard = now_ - options_.patience + options_.grace;
    }
  }
  followers_ = std::move(followers);
  for (auto it = transfers_.begin(); it != transfers_.end();) {
    it->second.sent = it->second.taken;
    it = followers_.count(it->first) > 0 ? std::next(it) : transfers_.erase(it);
  }
  ship_to_all();
  commit();
}

// A primary that has been replaced does not know what becomes of the updates that it has not
// acknowledged: their clients ask the next one.
void Replica::follow(Epoch epoch) {
  epoch_ = epoch;
  if (role_ == Role::kPrimary) role_ = Role::kSpare;
  followers_.clear();
  transfers_.clear();
  pending_.clear();
  waiting_.clear();
  proposal_.reset();
  candidate_ = 0;
  lease_end_ = {};
}

// What a primary sends

void Replica::ship(NodeId to, Follower& follower) {
  follower.sent = now_;
  if (transfers_.count(to) == 0 && follower.next <= log_.base()) begin_transfer(to, follower);
  const auto transfer = transfers_.find(to);
  transfer == transfers_.end() ? ship_entries(to, follower) : ship_pieces(to, transfer->second);
}

void Replica::ship_entries(NodeId to, Follower& follower) {
  Append append{.epoch = epoch_,
                .previous = follower.next - 1,
                .previous_epoch = log_.epoch_at(follower.next - 1),
                .committed = committed_};
  std::size_t bytes = 0;
  while (follower.next <= log_.last() && append.entries.size() < options_.sent_entries) {
    const Entry& entry = log_.at(follower.next);
    bytes += entry.command.bytes.size();
    if (bytes > options_.sent_bytes && !append.entries.empty()) break;
    append.entries.push_back(entry);
    ++follower.next;
  }
  send(to, std::move(append));
}

bool Replica::has_more_for(NodeId node, const Follower& follower) const {
  const auto transfer = transfers_.find(node);
  if (transfer != transfers_.end()) return transfer->second.has_more();
  const Index known = std::max(follower.matched, follower.begun);
  return !follower.is_silent && follower.next <= log_.last() &&
         follower.next - 1 - std::min(known, follower.next - 1) <
             kAheadMessages * options_.sent_entries &&
         log_.bytes_between(known, follower.next - 1) < options_.ahead_bytes;
}

// Slower each time: what is large takes its time, and would take longer if it went twice.
void Replica::go_back(NodeId node, Follower& follower) {
  const auto transfer = transfers_.find(node);
  const bool has_all = follower.has_answered && follower.matched + 1 == follower.next;
  if (transfer == transfers_.end() && has_all) return;  // it is only asked whether it lives
  follower.wait =
      std::max(options_.resend, std::min(follower.wait * 2, options_.patience / kTriesOfPatience));
  follower.is_silent = true;
  if (transfer != transfers_.end()) {
    transfer->second.sent = transfer->second.taken;
    transfer->second.window = 1;
  } else {
    if (follower.has_answered) follower.begun = follower.matched;
    follower.next = follower.begun + 1;
  }
}

// What is new at once; what has no answer again, after a while.
void Replica::ship_to_all() {
  for (auto& [node, follower] : followers_) {
    const bool is_late = now_ >= follower.sent + follower.wait;
    if (is_late) go_back(node, follower);
    // One after the other, as far as there is room.
    if (is_late) ship(node, follower);
    while (has_more_for(node, follower)) ship(node, follower);
  }
}

void Replica::on(NodeId from, const Appended& appended) {
  if (appended.epoch > epoch_) return follow(appended.epoch);  // and hears the rest by a heartbeat
  const auto found = followers_.find(from);
  if (role_ != Role::kPrimary || appended.epoch < epoch_ || found == followers_.end()) return;
  Follower& follower = found->second;
  const auto transfer = transfers_.find(from);
  if (appended.is_refused) {
    if (transfer != transfers_.end()) return;  // of what was sent ahead of the snapshot
    follower.heard = now_;
    return step_back(from, follower, appended.last);
  }
  follower.heard = now_;
  follower.is_silent = false;
  follower.wait = options_.resend;
  follower.has_answered = true;
  follower.matched = std::max(follower.matched, appended.last);
  follower.next = std::max(follower.next, follower.matched + 1);
  follower.kept = std::max(follower.kept, follower.matched);
  if (transfer != transfers_.end() && follower.matched >= transfer->second.index) {
    transfers_.erase(transfer);
    follower.next = follower.matched + 1;
    follower.begun = follower.matched;
    follower.target = log_.last();
  }
  add_candidate();
  commit();
  while (has_more_for(from, follower)) ship(from, follower);
}

// One message from there on. All that were on their way behind it are refused as well.
void Replica::step_back(NodeId node, Follower& follower, Index last) {
  const Index begun = std::max(follower.matched, std::min(follower.next - 1, last));
  if (follower.is_silent && follower.begun <= begun) return;
  follower.begun = begun;
  follower.next = begun + 1;
  follower.is_silent = true;
  follower.wait = options_.resend;
  ship(node, follower);
}

std::vector<NodeId> Replica::required() const {
  std::vector<NodeId> out = configuration_.backups;
  // Else it might be behind for ever, by what has come since its last acknowledgement.
  if (candidate_ != 0 && waits_for_candidate() && is_close(candidate_)) out.push_back(candidate_);
  if (!proposal_) return out;
  // Nobody may be promoted without an update that was acknowledged: from the moment on when the
  // membership service may make a node a backup, it counts.
  for (const NodeId node : proposal_->backups) {
    if (std::find(out.begin(), out.end(), node) == out.end()) out.push_back(node);
  }
  return out;
}

bool Replica::is_close(NodeId node) const {
  const auto found = followers_.find(node);
  return found != followers_.end() && transfers_.count(node) == 0 && found->second.has_answered &&
         found->second.matched >= found->second.target;
}

Index Replica::acknowledged() const {
  Index out = log_.last();
  for (const NodeId node : required()) {
    const auto found = followers_.find(node);
    out = std::min(out, found == followers_.end() ? 0 : found->second.matched);
  }
  return out;
}

void Replica::commit() {
  committed_ = std::max(committed_, acknowledged());
  apply_committed();
}

std::optional<std::string> Replica::result_of(const Command& command) const {
  const auto client = applied_.clients.find(command.client);
  if (client == applied_.clients.end()) return std::nullopt;
  const auto found = client->second.results.find(command.sequence);
  if (found == client->second.results.end()) return std::nullopt;
  return found->second;
}

// Its client has the result, or has given it up.
bool Replica::is_forgotten(const Command& command) const {
  const auto client = applied_.clients.find(command.client);
  return client != applied_.clients.end() && command.sequence < client->second.oldest;
}

void Replica::apply_committed() {
  for (; applied_until_ < readable(); ++applied_until_) {
    const Command& command = log_.at(applied_until_ + 1).command;
    std::optional<std::string> result = result_of(command);
    if (!result && !is_forgotten(command)) {
      result = state_->apply(command.bytes);
      Applied::Client& client = applied_.clients[command.client];
      client.oldest = std::max(client.oldest, command.oldest);
      client.results.erase(client.results.begin(), client.results.lower_bound(client.oldest));
      client.results[command.sequence] = *result;
      if (client.results.size() > options_.window) {
        client.results.erase(client.results.begin());
        client.oldest = client.results.begin()->first;
      }
    }
    pending_.erase({command.client, command.sequence});
    const auto told = waiting_.find(applied_until_ + 1);
    if (told == waiting_.end()) continue;
    if (result) send(told->second, Updated{command.sequence, *result});
    waiting_.erase(told);
  }
  trim();
}

Index Replica::kept_from() const {
  Index out = applied_until_;
  for (const auto& [node, follower] : followers_) {
    if (follower.kept > 0) out = std::min(out, follower.kept);
  }
  return out;
}

void Replica::trim() { log_.forget(kept_from(), options_.kept_entries, options_.kept_bytes); }

// What a backup does

void Replica::on(NodeId from, const Append& append) {
  if (is_fenced(append.epoch)) {
    return send(from, Appended{.epoch = epoch_, .is_refused = true, .last = log_.last()});
  }
  if (append.epoch > epoch_) follow(append.epoch);
  if (!log_.has(append.previous, append.previous_epoch)) {
    const Index last = std::min(log_.last(), append.previous - 1);
    return send(from, Appended{.epoch = append.epoch, .is_refused = true, .last = last});
  }
  Index index = append.previous;
  for (const Entry& entry : append.entries) {
    ++index;
    if (log_.has(index, entry.epoch)) continue;
    COHORT_CHECK(index > committed_, "epoch ", append.epoch, " takes back entry ", index,
                 " of epoch ", log_.epoch_at(index), ", which was committed");
    log_.cut_behind(index - 1);
    log_.append(entry);
  }
  // Is applied by advance(), behind the acknowledgement, while the primary does so, too.
  committed_ = std::max(committed_, std::min(append.committed, index));
  send(from, Appended{.epoch = append.epoch, .last = index});
}

// Backups come and go

void Replica::propose(std::vector<NodeId> backups) {
  proposal_ = {.epoch = epoch_ + 1, .primary = options_.id, .backups = std::move(backups)};
  send(options_.membership, Proposal{*proposal_});
}

void Replica::look_after_followers() {
  if (proposal_) return;
  for (const auto& [node, follower] : followers_) {
    if (now_ < follower.heard + options_.patience) continue;
    if (node == candidate_) {
      candidate_ = 0;
      transfers_.erase(node);
      followers_.erase(node);
      commit();
    } else {
      std::vector<NodeId> others = configuration_.backups;
      others.erase(std::find(others.begin(), others.end(), node));
      propose(std::move(others));
    }
    return;
  }
}

void Replica::on(NodeId from, const Join& /*join*/) {
  const bool is_wanted = configuration_.backups.size() < options_.backups && candidate_ == 0;
  if (role_ != Role::kPrimary || !is_wanted || from == options_.id || followers_.count(from) > 0) {
    return;
  }
  candidate_ = from;
  followers_[from] = new_follower();
  ship(from, followers_[from]);
}

void Replica::add_candidate() {
  if (candidate_ == 0 || proposal_ || followers_[candidate_].matched < owed()) return;
  std::vector<NodeId> backups = configuration_.backups;
  backups.push_back(candidate_);
  propose(std::move(backups));
}

// What clients ask

void Replica::on(NodeId from, const Update& update) {
  const Command& command = update.command;
  if (role_ != Role::kPrimary) return send(from, Configured{configuration_});
  if (const auto result = result_of(command)) {
    return send(from, Updated{command.sequence, *result});
  }
  if (is_forgotten(command)) return;
  const auto found = pending_.find({command.client, command.sequence});
  if (found != pending_.end()) {
    waiting_[found->second] = from;
    return;
  }
  if (!has_room()) return;  // it asks again
  log_.append({.epoch = epoch_, .command = command});
  pending_[{command.client, command.sequence}] = log_.last();
  waiting_[log_.last()] = from;
  ship_to_all();
  commit();
}

void Replica::on(NodeId from, const Read& read) {
  if (role_ != Role::kPrimary) return send(from, Configured{configuration_});
  if (!has_lease(now_) || !has_recovered()) return;  // it asks again
  send(from, ReadAnswer{read.ticket, state_->read(read.query)});
}

}  // namespace cohort::internal::replication
