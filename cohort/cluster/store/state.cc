// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/state.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "cohort/base/strings.h"

namespace cohort::internal {
namespace {

using std::chrono::milliseconds;

// "2.1 s".
std::string store_seconds(milliseconds time) {
  return str_cat(static_cast<double>(time.count()) / 1000, " s");
}

milliseconds store_milliseconds(StoreState::Time::duration time) {
  return std::chrono::duration_cast<milliseconds>(time);
}

bool is_write(StoreVerb verb) { return verb != StoreVerb::kGet && verb != StoreVerb::kMembers; }

const char* state_name(StoreMember::State state) {
  switch (state) {
    case StoreMember::State::kAlive:
      return "lives";
    case StoreMember::State::kLeft:
      return "has ended";
    case StoreMember::State::kDead:
      return "was not heard of for longer than its lease";
  }
  return "";
}

}  // namespace

void StoreState::answer(uint64_t ticket, StoreReply reply) {
  answers_.push_back({ticket, std::move(reply)});
}

void StoreState::refuse(uint64_t ticket, ErrorCode code, const std::string& text) {
  answer(ticket, {.code = code, .text = str_cat("[store] ", text)});
}

std::vector<StoreState::Answer> StoreState::take_answers() { return std::exchange(answers_, {}); }

// Whether the one who asks may: a task's earlier process, and one that was given up, may not.
bool StoreState::is_allowed(uint64_t ticket, const StoreRequest& request, Time now) {
  if (!closed_.empty()) {
    refuse(ticket, ErrorCode::kUnavailable, closed_);
    return false;
  }
  if (request.key.size() > limits_.key_bytes || request.value.size() > limits_.value_bytes ||
      request.task.size() > limits_.key_bytes) {
    refuse(
        ticket, ErrorCode::kInvalidArgument,
        str_cat("expected keys of at most ", limits_.key_bytes, " bytes and values of at most ",
                limits_.value_bytes, ", got ", request.key.size(), " and ", request.value.size()));
    return false;
  }
  if (request.is_keeper || request.verb == StoreVerb::kJoin) return true;
  const auto found = members_.find(request.task);
  if (found == members_.end()) {
    if (!is_write(request.verb)) return true;
    refuse(ticket, ErrorCode::kFailedPrecondition,
           str_cat("expected a task that has joined, got \"", request.task, "\""));
    return false;
  }
  const StoreMember& member = found->second.told;
  if (member.generation == request.generation && member.state == StoreMember::State::kAlive) {
    return true;
  }
  const auto silent = store_milliseconds(now - found->second.heard);
  refuse(ticket, ErrorCode::kFailedPrecondition,
         member.generation != request.generation
             ? str_cat(request.task, " (generation ", request.generation,
                       ") is too late: another process is this task now (generation ",
                       member.generation, " at ", member.address,
                       "). Nothing that it writes counts; end it")
             : str_cat(request.task, " (generation ", request.generation, ") is too late: it ",
                       state_name(member.state), " (heard of ", store_seconds(silent),
                       " ago). The others have gone on without it, and nothing that it writes "
                       "counts; end it, and start it again"));
  return false;
}

void StoreState::ask(uint64_t ticket, const StoreRequest& request, Time now) {
  advance(now);
  if (!is_allowed(ticket, request, now)) return;
  switch (request.verb) {
    case StoreVerb::kGet:
      return get(ticket, request, now);
    case StoreVerb::kSet:
    case StoreVerb::kInsert:
    case StoreVerb::kCompareExchange:
    case StoreVerb::kErase:
      return change(ticket, request);
    case StoreVerb::kAdd:
      return add(ticket, request);
    case StoreVerb::kMeet:
      return meet(ticket, request, now);
    case StoreVerb::kJoin:
      return join(ticket, request, now);
    case StoreVerb::kHeartbeat:
      return heartbeat(ticket, request, now);
    case StoreVerb::kLeave:
      return leave(ticket, request, now);
    case StoreVerb::kMembers:
      return answer(ticket, {.number = version_, .members = members(now)});
  }
}

void StoreState::wait(uint64_t ticket, const StoreRequest& request, Time now) {
  if (waiters_.size() >= limits_.waiting) {
    return refuse(ticket, ErrorCode::kResourceExhausted,
                  str_cat("expected at most ", limits_.waiting, " requests that wait"));
  }
  waiters_[ticket] = {.request = request, .until = now + request.wait};
}

void StoreState::get(uint64_t ticket, const StoreRequest& request, Time now) {
  const auto found = values_.find(request.key);
  if (found != values_.end()) return answer(ticket, {.yes = true, .value = found->second});
  if (request.wait.count() <= 0) return answer(ticket, {});
  wait(ticket, request, now);
}

void StoreState::write(const std::string& key, const std::string& value) {
  const auto [entry, is_new] = values_.try_emplace(key);
  bytes_ += value.size() - entry->second.size() + (is_new ? key.size() : 0);
  entry->second = value;
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const bool waits = it->second.request.verb == StoreVerb::kGet && it->second.request.key == key;
    if (waits) answer(it->first, {.yes = true, .value = value});
    it = waits ? waiters_.erase(it) : std::next(it);
  }
}

void StoreState::change(uint64_t ticket, const StoreRequest& request) {
  const auto found = values_.find(request.key);
  const bool is_there = found != values_.end();
  if (request.verb == StoreVerb::kErase) {
    if (is_there) {
      bytes_ -= request.key.size() + found->second.size();
      values_.erase(found);
    }
    return answer(ticket, {.yes = is_there});
  }
  const std::string before = is_there ? found->second : "";
  bool writes = request.verb == StoreVerb::kSet;
  if (request.verb == StoreVerb::kInsert) writes = !is_there;
  if (request.verb == StoreVerb::kCompareExchange) writes = is_there && before == request.expected;
  if (!writes) return answer(ticket, {.yes = false, .value = before});
  if (bytes_ + request.key.size() + request.value.size() > limits_.all_bytes + before.size()) {
    return refuse(ticket, ErrorCode::kResourceExhausted,
                  str_cat("expected at most ", limits_.all_bytes,
                          " bytes in the store, got more by \"", request.key, "\""));
  }
  write(request.key, request.value);
  answer(ticket, {.yes = true, .value = request.value});
}

void StoreState::add(uint64_t ticket, const StoreRequest& request) {
  int64_t number = 0;
  const auto found = values_.find(request.key);
  if (found != values_.end()) {
    const std::string& text = found->second;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || rest != text.data() + text.size()) {
      return refuse(ticket, ErrorCode::kFailedPrecondition,
                    str_cat("expected \"", request.key, "\" to be a number, got another value"));
    }
  }
  int64_t sum = 0;
  if (__builtin_add_overflow(number, request.number, &sum)) {
    return refuse(ticket, ErrorCode::kOutOfRange,
                  str_cat("expected the sum at \"", request.key, "\" to be a number of 64 bits"));
  }
  write(request.key, str_cat(sum));
  answer(ticket, {.number = sum});
}

// Those who wait at one name, until there are as many as were said.
void StoreState::meet(uint64_t ticket, const StoreRequest& request, Time now) {
  const auto is_here = [&](const Waiter& waiter) {
    return waiter.request.verb == StoreVerb::kMeet && waiter.request.key == request.key;
  };
  std::map<std::string, std::string> all;
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    if (!is_here(it->second)) {
      ++it;
      continue;
    }
    const StoreRequest& other = it->second.request;
    if (other.task == request.task) {  // its earlier call, which it has given up
      refuse(it->first, ErrorCode::kAborted, str_cat(request.task, " has come again"));
      it = waiters_.erase(it);
      continue;
    }
    if (other.number != request.number) {
      return refuse(
          ticket, ErrorCode::kFailedPrecondition,
          str_cat("expected all to say how many meet at \"", request.key, "\", got ", other.number,
                  " from ", other.task, " and ", request.number, " from ", request.task));
    }
    all[other.task] = other.value;
    ++it;
  }
  all[request.task] = request.value;
  if (static_cast<int64_t>(all.size()) < request.number) {
    wait(ticket, request, now);
    return fail_hopeless_meetings(now);
  }
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const bool here = is_here(it->second);
    if (here) answer(it->first, {.yes = true, .all = all});
    it = here ? waiters_.erase(it) : std::next(it);
  }
  answer(ticket, {.yes = true, .all = std::move(all)});
}

void StoreState::join(uint64_t ticket, const StoreRequest& request, Time now) {
  if (request.task.empty() || request.lease.count() <= 0) {
    return refuse(ticket, ErrorCode::kInvalidArgument,
                  "expected a task and a lease of more than 0 to join");
  }
  const auto found = members_.find(request.task);
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
    found->second.heard = now;
    found->second.told.doing = request.value;
  }
  if (request.number != version_ || request.wait.count() <= 0) {
    return answer(ticket, {.number = version_, .members = members(now)});
  }
  wait(ticket, request, now);
}

void StoreState::leave(uint64_t ticket, const StoreRequest& request, Time now) {
  const auto found = members_.find(request.task);
  if (found != members_.end()) {
    found->second.told.state = StoreMember::State::kLeft;
    fence(found->second);
    news(now);
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
                     ") is no part of the job any more"));
    }
    it = is_its ? waiters_.erase(it) : std::next(it);
  }
}

// Members have changed: who holds a heartbeat is told.
void StoreState::news(Time now) {
  ++version_;
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const bool waits = it->second.request.verb == StoreVerb::kHeartbeat;
    if (waits) answer(it->first, {.number = version_, .members = members(now)});
    it = waits ? waiters_.erase(it) : std::next(it);
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
    it = hopeless ? waiters_.erase(it) : std::next(it);
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

std::string StoreState::who_has_come(const std::string& key, Time now) const {
  std::vector<std::string> here;
  for (const auto& [ticket, waiter] : waiters_) {
    const StoreRequest& request = waiter.request;
    if (request.verb == StoreVerb::kMeet && request.key == key) here.push_back(request.task);
  }
  std::vector<std::string> missing;
  for (const auto& [task, member] : members_) {
    if (std::find(here.begin(), here.end(), task) != here.end()) continue;
    missing.push_back(str_cat(task, " (", member.told.address, "), which ",
                              state_name(member.told.state), ", was heard of ",
                              store_seconds(store_milliseconds(now - member.heard)), " ago",
                              member.told.doing.empty() ? "" : " and was ", member.told.doing));
  }
  return str_cat(here.size(), " (", cohort::join(here, ", "), ")",
                 missing.empty() ? "" : "; not here: ", cohort::join(missing, "; "));
}

void StoreState::end_wait(uint64_t ticket, const Waiter& waiter, Time now) {
  const StoreRequest& request = waiter.request;
  switch (request.verb) {
    case StoreVerb::kHeartbeat:
      return answer(ticket, {.number = version_});
    case StoreVerb::kMeet:
      return refuse(ticket, ErrorCode::kDeadlineExceeded,
                    str_cat("expected ", request.number, " at \"", request.key, "\" within ",
                            store_seconds(request.wait), ", got ", who_has_come(request.key, now)));
    default:
      return refuse(ticket, ErrorCode::kDeadlineExceeded,
                    str_cat("expected \"", request.key, "\" to be set within ",
                            store_seconds(request.wait), ", and nobody has"));
  }
}

void StoreState::advance(Time now) {
  bool changed = false;
  for (auto& [task, member] : members_) {
    const bool dies =
        member.told.state == StoreMember::State::kAlive && now - member.heard > member.lease;
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
  for (const uint64_t ticket : over) waiters_.erase(ticket);
}

void StoreState::postpone_leases(milliseconds by) {
  for (auto& [task, member] : members_) member.heard += by;
}

void StoreState::close(const std::string& why) {
  closed_ = why;
  for (const auto& [ticket, waiter] : waiters_) refuse(ticket, ErrorCode::kUnavailable, why);
  waiters_.clear();
}

StoreState::Time StoreState::next_event() const {
  Time next = Time::max();
  for (const auto& [ticket, waiter] : waiters_) next = std::min(next, waiter.until);
  for (const auto& [task, member] : members_) {
    if (member.told.state != StoreMember::State::kAlive) continue;
    next = std::min(next, member.heard + member.lease + milliseconds(1));
  }
  return next;
}

}  // namespace cohort::internal
