// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/state.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "cohort/base/strings.h"
#include "cohort/cluster/store/state_text.h"

namespace cohort::internal::cluster {
namespace {

bool is_write(StoreVerb verb) { return verb != StoreVerb::kGet && verb != StoreVerb::kMembers; }

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
  if (!fits(ticket, request)) return false;
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

bool StoreState::fits(uint64_t ticket, const StoreRequest& request) {
  const std::size_t value = std::max(request.value.size(), request.pace.size());
  if (request.key.size() <= limits_.key_bytes && request.task.size() <= limits_.key_bytes &&
      value <= limits_.value_bytes) {
    return true;
  }
  refuse(ticket, ErrorCode::kInvalidArgument,
         str_cat("expected keys of at most ", limits_.key_bytes, " bytes and values of at most ",
                 limits_.value_bytes, ", got ", std::max(request.key.size(), request.task.size()),
                 " and ", value, " from ", request.task.empty() ? "no task" : request.task));
  return false;
}

// What keys, values and requests that wait may take; `before` of it is given back.
bool StoreState::has_room(uint64_t ticket, const std::string& key, std::size_t bytes,
                          std::size_t before) {
  if (bytes_ + waiting_bytes_ + bytes <= limits_.all_bytes + before) return true;
  refuse(ticket, ErrorCode::kResourceExhausted,
         str_cat("expected at most ", limits_.all_bytes, " bytes in the store, got ",
                 bytes_ + waiting_bytes_ + bytes - before, " with \"", key,
                 "\"; erase what nobody needs any more"));
  return false;
}

void StoreState::ask(uint64_t ticket, const StoreRequest& request, Time now) {
  note_asker(now);
  advance(now);
  if (!is_allowed(ticket, request, now)) return;
  switch (request.verb) {
    case StoreVerb::kGet:
      return get(ticket, request, now);
    case StoreVerb::kSet:
    case StoreVerb::kInsert:
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
    case StoreVerb::kMayWrite:
      return may_write(ticket, request, now);
  }
}

void StoreState::wait(uint64_t ticket, const StoreRequest& request, Time now) {
  if (waiters_.size() >= limits_.waiting) {
    return refuse(
        ticket, ErrorCode::kResourceExhausted,
        str_cat("expected at most ", limits_.waiting, " requests that wait, got one more from ",
                request.task.empty() ? "no task" : request.task));
  }
  const std::size_t bytes = request.key.size() + request.value.size();
  if (!has_room(ticket, request.key, bytes, 0)) return;
  waiting_bytes_ += bytes;
  waiters_[ticket] = {.request = request, .until = now + request.wait};
}

StoreState::Waiters::iterator StoreState::forget(Waiters::iterator waiter) {
  const StoreRequest& request = waiter->second.request;
  waiting_bytes_ -= request.key.size() + request.value.size();
  return waiters_.erase(waiter);
}

void StoreState::get(uint64_t ticket, const StoreRequest& request, Time now) {
  const auto found = values_.find(request.key);
  if (found != values_.end()) return answer(ticket, {.yes = true, .value = found->second});
  if (request.wait.count() <= 0) return answer(ticket, {});
  wait(ticket, request, now);
}

bool StoreState::may_be_set(uint64_t ticket, const std::string& key, std::size_t bytes,
                            const std::string* before) {
  if (before == nullptr && values_.size() >= limits_.keys) {
    refuse(ticket, ErrorCode::kResourceExhausted,
           str_cat("expected at most ", limits_.keys, " keys in the store, got one more, \"", key,
                   "\"; erase what nobody needs any more"));
    return false;
  }
  const std::size_t now = before == nullptr ? 0 : key.size() + before->size();
  return has_room(ticket, key, key.size() + bytes, now);
}

void StoreState::write(const std::string& key, const std::string& value) {
  const auto [entry, is_new] = values_.try_emplace(key);
  bytes_ += value.size() - entry->second.size() + (is_new ? key.size() : 0);
  entry->second = value;
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const bool waits = it->second.request.verb == StoreVerb::kGet && it->second.request.key == key;
    if (waits) answer(it->first, {.yes = true, .value = value});
    it = waits ? forget(it) : std::next(it);
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
  const bool writes = request.verb == StoreVerb::kSet || !is_there;  // insert: the first wins
  if (!writes) return answer(ticket, {.yes = false, .value = before});
  if (!may_be_set(ticket, request.key, request.value.size(), is_there ? &before : nullptr)) return;
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
  const std::string text = str_cat(sum);
  const bool is_there = found != values_.end();
  if (!may_be_set(ticket, request.key, text.size(), is_there ? &found->second : nullptr)) return;
  write(request.key, text);
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
      it = forget(it);
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
    it = here ? forget(it) : std::next(it);
  }
  answer(ticket, {.yes = true, .all = std::move(all)});
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
    case StoreVerb::kMayWrite:
      return refuse(ticket, ErrorCode::kFailedPrecondition, doubts(now));
    default:
      return refuse(ticket, ErrorCode::kDeadlineExceeded,
                    str_cat("expected \"", request.key, "\" to be set within ",
                            store_seconds(request.wait), ", and nobody has"));
  }
}

void StoreState::close(const std::string& why) {
  closed_ = why;
  for (const auto& [ticket, waiter] : waiters_) refuse(ticket, ErrorCode::kUnavailable, why);
  waiters_.clear();
  waiting_bytes_ = 0;
}

}  // namespace cohort::internal::cluster
