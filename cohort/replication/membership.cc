// SPDX-License-Identifier: Apache-2.0
#include "cohort/replication/membership.h"

#include <algorithm>
#include <utility>

namespace cohort::internal::replication {

// The lease lasts so long if the node's clock is as slow, and this one as fast, as they may be.
Time Membership::patience() const {
  const double most = (1 + options_.clock_drift) * (1 + options_.clock_drift);
  return Time(static_cast<Time::rep>(static_cast<double>(options_.lease.count()) * most) + 1);
}

bool Membership::is_alive(NodeId node, Time now) const {
  const auto found = heard_.find(node);
  return found != heard_.end() && now < found->second + patience();
}

void Membership::receive(NodeId from, const Message& message, Time now) {
  if (dead_.count(from) > 0) return;  // a message that was late
  if (const auto* heartbeat = std::get_if<Heartbeat>(&message)) {
    heard_[from] = now;
    if (configuration_.epoch == 0) configuration_ = {.epoch = 1, .primary = from};
    outgoing_.push_back({from, HeartbeatAnswer{configuration_, heartbeat->sent}});
  } else if (const auto* proposal = std::get_if<Proposal>(&message)) {
    // Of two that follow the same configuration the first one counts.
    const bool is_next = proposal->configuration.epoch == configuration_.epoch + 1;
    if (is_next && from == configuration_.primary) configuration_ = proposal->configuration;
    outgoing_.push_back({from, Configured{configuration_}});
  } else if (std::holds_alternative<Ask>(message)) {
    outgoing_.push_back({from, Configured{configuration_}});
  }
}

void Membership::change(Configuration next) {
  configuration_ = std::move(next);
  for (const NodeId node : configuration_.backups)
    outgoing_.push_back({node, Configured{configuration_}});
  outgoing_.push_back({configuration_.primary, Configured{configuration_}});
}

// Every backup has all that was acknowledged, so any of them will do. Without one that lives the
// state waits for its primary: nobody else has it. The primary before stays as a backup, for it may
// only have stood still, and be the last that has the state by the time the next one has died.
void Membership::advance(Time now) {
  const Configuration& before = configuration_;
  if (before.epoch == 0 || is_alive(before.primary, now)) return;
  const auto promoted = std::find_if(before.backups.begin(), before.backups.end(),
                                     [&](NodeId node) { return is_alive(node, now); });
  if (promoted == before.backups.end()) return;
  Configuration next{.epoch = before.epoch + 1, .primary = *promoted};
  for (const NodeId node : before.backups) {
    if (node != *promoted) next.backups.push_back(node);
  }
  if (dead_.count(before.primary) == 0) next.backups.push_back(before.primary);
  change(std::move(next));
}

void Membership::has_died(NodeId node) {
  dead_.insert(node);
  heard_.erase(node);
  if (!configuration_.has_backup(node)) return;
  Configuration next = configuration_;
  ++next.epoch;
  next.backups.erase(std::find(next.backups.begin(), next.backups.end(), node));
  change(std::move(next));
}

std::vector<Outgoing> Membership::take_messages() { return std::exchange(outgoing_, {}); }

}  // namespace cohort::internal::replication
