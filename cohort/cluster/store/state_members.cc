// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/state.h"

#include <algorithm>
#include <utility>

#include "cohort/base/strings.h"
#include "cohort/cluster/store/state_text.h"

namespace cohort::internal::cluster {
namespace {

using std::chrono::milliseconds;

// What a task may say that it is doing.
constexpr std::size_t kDoingBytes = 4 << 10;

}  // namespace

void StoreState::join(uint64_t ticket, const StoreRequest& request, Time now) {
  if (request.task.empty() || request.lease.count() <= 0) {
    return refuse(ticket, ErrorCode::kInvalidArgument,
                  "expected a task and a lease of more than 0 to join");
  }
  const auto found = members_.find(request.task);
  if (found == members_.end() && members_.size() >= limits_.members) {
    return refuse(ticket, ErrorCode::kResourceExhausted,
                  str_cat("expected at most ", limits_.members, " tasks, got one more, \"",
                          request.task, "\""));
  }
  uint64_t generation = 1;
  if (found != members_.end()) {
    generation = found->second.told.generation + 1;
    fence(found->second);
  }
  members_[request.task] = {
      .told = {.task = request.task, .address = request.value, .generation = generation},
      .lease = request.lease,
      .heard = now};
  news(now);
  answer(ticket, {.number = static_cast<int64_t>(generation)});
}

void StoreState::heartbeat(uint64_t ticket, const StoreRequest& request, Time now) {
  const auto found = members_.find(request.task);
  if (found != members_.end()) {
    Member& member = found->second;
    member.heard = now;
    member.told.doing = request.value.substr(0, kDoingBytes);
    member.told.pace = request.pace.substr(0, kDoingBytes);
    // What was sent before the keeper was stopped says nothing of what came later.
    if (request.number >= member.doubted_at) {
      member.keeper_stopped = {};
      member.doubted_at = 0;
    }
    settle_doubts(now);
  }
  if (request.number != version_ || request.wait.count() <= 0) {
    return answer(ticket, {.number = version_, .members = members(now)});
  }
  StoreRequest waiting = request;
  waiting.value.clear();
  waiting.pace.clear();
  wait(ticket, waiting, now);
}

void StoreState::leave(uint64_t ticket, const StoreRequest& request, Time now) {
  const auto found = members_.find(request.task);
  if (found != members_.end()) {
    found->second.told.state = StoreMember::State::kLeft;
    found->second.doubted_at = 0;
    fence(found->second);
    news(now);
    settle_doubts(now);
  }
  answer(ticket, {});
}

// What a process that is no task any more waits for it does not get.
void StoreState::fence(const Member& member) {
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const StoreRequest& request = it->second.request;
    const bool is_its =
        request.task == member.told.task && request.generation == member.told.generation;
    if (is_its) {
      refuse(it->first, ErrorCode::kFailedPrecondition,
             str_cat(request.task, " (generation ", request.generation,
                     ") is too late: it is no part of the job any more"));
    }
    it = is_its ? forget(it) : std::next(it);
  }
}

// Members have changed: who holds a heartbeat is told.
void StoreState::news(Time now) {
  ++version_;
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const bool waits = it->second.request.verb == StoreVerb::kHeartbeat;
    if (waits) answer(it->first, {.number = version_, .members = members(now)});
    it = waits ? forget(it) : std::next(it);
  }
}

// Where more are expected than can come, nobody has to wait for the deadline.
void StoreState::fail_hopeless_meetings(Time now) {
  const auto dead = std::find_if(members_.begin(), members_.end(), [](const auto& entry) {
    return entry.second.told.state == StoreMember::State::kDead;
  });
  if (dead == members_.end()) return;
  const auto alive = std::count_if(members_.begin(), members_.end(), [](const auto& entry) {
    return entry.second.told.state == StoreMember::State::kAlive;
  });
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const StoreRequest& request = it->second.request;
    const bool hopeless = request.verb == StoreVerb::kMeet && request.number > alive;
    if (hopeless) {
      const Member& lost = dead->second;
      refuse(it->first, ErrorCode::kUnavailable,
             str_cat("expected ", request.number, " at \"", request.key, "\", but ", lost.told.task,
                     " (", lost.told.address, ") was not heard of for ",
                     store_seconds(store_milliseconds(now - lost.heard)),
                     "; end it, see its output, and start the job again"));
    }
    it = hopeless ? forget(it) : std::next(it);
  }
}

std::vector<StoreMember> StoreState::members(Time now) const {
  std::vector<StoreMember> out;
  for (const auto& [task, member] : members_) {
    out.push_back(member.told);
    out.back().silent = std::max(milliseconds(0), store_milliseconds(now - member.heard));
  }
  return out;
}

// A lease is for those who go on without its task. Where nobody was heard at all, all were stopped
// together (Ctrl-Z of the job, a machine that was suspended), and who comes back first must not
// find the others dead.
milliseconds StoreState::quiet() const {
  milliseconds longest{0};
  for (const auto& [task, member] : members_) {
    if (member.told.state == StoreMember::State::kAlive) longest = std::max(longest, member.lease);
  }
  return longest / 2;
}

void StoreState::note_asker(Time now) {
  const milliseconds most = quiet();
  const auto silent = now - std::exchange(asked_, now);
  if (silent <= most) return;
  for (auto& [task, member] : members_) member.heard += silent - most;
}

void StoreState::keeper_was_stopped(milliseconds time, Time now) {
  bool doubts = false;
  for (auto& [task, member] : members_) {
    if (member.told.state != StoreMember::State::kAlive) continue;
    member.keeper_stopped += time;
    if (now - member.heard + member.keeper_stopped <= member.lease) continue;
    member.doubted_at = version_ + 1;
    doubts = true;
  }
  if (doubts) news(now);
}

// The store has the last word on who may write, if those whose word it keeps still heed it.
void StoreState::may_write(uint64_t ticket, const StoreRequest& request, Time now) {
  const std::string why_not = doubts(now);
  if (why_not.empty()) return answer(ticket, {.yes = true});
  const bool for_good = std::any_of(members_.begin(), members_.end(), [](const auto& entry) {
    return entry.second.doubted_at > 0 && entry.second.told.state == StoreMember::State::kDead;
  });
  if (for_good) return refuse(ticket, ErrorCode::kFailedPrecondition, why_not);
  wait(ticket, request, now);
}

// Why nobody may write; empty: who lives may.
std::string StoreState::doubts(Time now) const {
  for (const auto& [task, member] : members_) {
    if (member.doubted_at == 0) continue;
    return str_cat("the process that keeps the store was stopped for ",
                   store_seconds(member.keeper_stopped), ", and ", task, " (", member.told.address,
                   "), which was heard of ", store_seconds(store_milliseconds(now - member.heard)),
                   " before, has not come back: it may have given this job up, so nothing that "
                   "is left of the job must write; end it, and start it again");
  }
  return {};
}

void StoreState::settle_doubts(Time now) {
  const std::string why_not = doubts(now);
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const bool waits = it->second.request.verb == StoreVerb::kMayWrite && why_not.empty();
    if (waits) answer(it->first, {.yes = true});
    it = waits ? forget(it) : std::next(it);
  }
}

void StoreState::advance(Time now) {
  const Time judged = std::min(now, asked_ + quiet());
  bool changed = false;
  for (auto& [task, member] : members_) {
    const bool dies =
        member.told.state == StoreMember::State::kAlive && judged - member.heard > member.lease;
    if (!dies) continue;
    member.told.state = StoreMember::State::kDead;
    fence(member);
    changed = true;
  }
  if (changed) {
    news(now);
    fail_hopeless_meetings(now);
  }
  std::vector<uint64_t> over;
  for (const auto& [ticket, waiter] : waiters_) {
    if (now < waiter.until) continue;
    end_wait(ticket, waiter, now);
    over.push_back(ticket);
  }
  for (const uint64_t ticket : over) forget(waiters_.find(ticket));
}

bool StoreState::is_idle() const {
  return waiters_.empty() && std::none_of(members_.begin(), members_.end(), [](const auto& entry) {
           return entry.second.told.state == StoreMember::State::kAlive;
         });
}

StoreState::Time StoreState::next_event() const {
  Time next = Time::max();
  const Time judged = asked_ + quiet();
  for (const auto& [ticket, waiter] : waiters_) next = std::min(next, waiter.until);
  for (const auto& [task, member] : members_) {
    if (member.told.state != StoreMember::State::kAlive) continue;
    const Time ends = member.heard + member.lease + milliseconds(1);
    if (ends <= judged) next = std::min(next, ends);
  }
  return next;
}

}  // namespace cohort::internal::cluster
