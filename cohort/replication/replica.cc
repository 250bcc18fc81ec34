// SPDX-License-Identifier: Apache-2.0
#include "cohort/replication/replica.h"

#include <algorithm>

namespace cohort::internal::replication {

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
  configuration_ = configuration;
  if (configuration.primary != options_.id) {
    follow(configuration.epoch);
    role_ = configuration.has_backup(options_.id) ? Role::kBackup : Role::kSpare;
    return;
  }
  epoch_ = configuration.epoch;
  lead(!led);
}

// Who acknowledged what in an older epoch is asked anew: so much is simple to be sure of.
void Replica::lead(bool is_promoted) {
  role_ = Role::kPrimary;
  proposal_.reset();
  if (is_promoted) {
    inherited_ = log_.last();
    candidate_ = 0;
    for (Index i = applied_until_ + 1; i <= log_.last(); ++i) {
      const Command& command = log_.at(i).command;
      pending_[{command.client, command.sequence}] = i;
    }
  }
  if (configuration_.has_backup(candidate_)) candidate_ = 0;
  followers_.clear();
  const Follower fresh{.next = log_.last() + 1, .heard = now_};
  for (const NodeId node : configuration_.backups) followers_[node] = fresh;
  if (candidate_ != 0) followers_[candidate_] = fresh;
  ship_to_all();
  commit();
}

// A primary that has been replaced does not know what becomes of the updates that it has not
// acknowledged: their clients ask the next one.
void Replica::follow(Epoch epoch) {
  epoch_ = epoch;
  if (role_ == Role::kPrimary) role_ = Role::kSpare;
  followers_.clear();
  pending_.clear();
  waiting_.clear();
  proposal_.reset();
  candidate_ = 0;
  lease_end_ = {};
}

// What a primary sends

void Replica::ship(NodeId to, Follower& follower) {
  follower.sent = now_;
  if (follower.next <= log_.base()) {
    send(to, Snapshot{.epoch = epoch_,
                      .index = applied_until_,
                      .index_epoch = log_.epoch_at(applied_until_),
                      .state = state_->snapshot(),
                      .applied = applied_});
    follower.next = applied_until_ + 1;
    return;
  }
  Append append{.epoch = epoch_,
                .previous = follower.next - 1,
                .previous_epoch = log_.epoch_at(follower.next - 1),
                .committed = committed_};
  while (follower.next <= log_.last() && append.entries.size() < options_.sent_entries) {
    append.entries.push_back(log_.at(follower.next++));
  }
  send(to, std::move(append));
}

// What is new at once; what has no answer again, after a while.
void Replica::ship_to_all() {
  for (auto& [node, follower] : followers_) {
    const bool is_late = now_ >= follower.sent + options_.resend;
    if (is_late) follower.next = follower.matched == 0 ? follower.next : follower.matched + 1;
    if (is_late || follower.next <= log_.last()) ship(node, follower);
  }
}

void Replica::on(NodeId from, const Appended& appended) {
  if (appended.epoch > epoch_) return follow(appended.epoch);  // and hears the rest by a heartbeat
  const auto found = followers_.find(from);
  if (role_ != Role::kPrimary || appended.epoch < epoch_ || found == followers_.end()) return;
  Follower& follower = found->second;
  follower.heard = now_;
  if (appended.is_refused) {
    follower.next = std::max(follower.matched, std::min(follower.next - 1, appended.last)) + 1;
    ship(from, follower);
    return;
  }
  follower.matched = std::max(follower.matched, appended.last);
  follower.next = std::max(follower.next, follower.matched + 1);
  add_candidate();
  commit();
}

std::vector<NodeId> Replica::required() const {
  std::vector<NodeId> out = configuration_.backups;
  if (!proposal_) return out;
  // Nobody may be promoted without an update that was acknowledged: from the moment on when the
  // membership service may make somebody a backup, he counts.
  for (const NodeId node : proposal_->backups) {
    if (!configuration_.has_backup(node)) out.push_back(node);
  }
  return out;
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
  log_.forget(applied_until_, options_.kept_entries);
}

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
  committed_ = std::max(committed_, std::min(append.committed, index));
  apply_committed();
  send(from, Appended{.epoch = append.epoch, .last = index});
}

void Replica::on(NodeId from, const Snapshot& snapshot) {
  if (is_fenced(snapshot.epoch)) return;
  if (snapshot.epoch > epoch_) follow(snapshot.epoch);
  // What is behind it may have been acknowledged by this node, so it stays where it fits.
  if (snapshot.index > applied_until_) {
    if (!log_.has(snapshot.index, snapshot.index_epoch)) {
      log_.begin_behind(snapshot.index, snapshot.index_epoch);
    }
    state_->restore(snapshot.state);
    applied_ = snapshot.applied;
    applied_until_ = snapshot.index;
    committed_ = std::max(committed_, snapshot.index);
  }
  send(from, Appended{.epoch = snapshot.epoch, .last = snapshot.index});
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
      followers_.erase(node);
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
  followers_[from] = {.next = log_.last() + 1, .heard = now_};
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
