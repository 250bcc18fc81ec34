// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/closure_effects.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/strings.h"
#include "cohort/coordinator/parameters/parameter_servers.h"

namespace cohort::internal::coordinator {
namespace {

// As long as a call to a group of servers may take, which finds another one of them meanwhile.
constexpr std::chrono::minutes kMostSettling{1};
constexpr std::chrono::seconds kRetryPause{1};

constexpr const char* kFromCheckpoint = "restart the job from its last checkpoint";
// Where the journal has it.
constexpr const char* kByNextChief =
    "start the chief again, which tells the others and writes it down, or, where servers are gone, "
    "the job from its last checkpoint";

// Of a function of which some changes may be done, and others not: never one for which it is run
// again.
std::exception_ptr unsettled_error(const std::exception_ptr& why,
                                   const char* advice = kFromCheckpoint) {
  return std::make_exception_ptr(
      Error(ErrorCode::kUnknown,
            str_cat("[schedule_exactly_once] expected all parameter servers to apply the "
                    "function's changes; some may have, and the function is not run again: ",
                    advice, ". Got: ", text_of(why))));
}

}  // namespace

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "something that is no std::exception";
  }
}

void settle_decided(Journal& journal, ParameterServers& servers) {
  for (const ClosureSettlement& each : journal.open()) {
    std::vector<std::exception_ptr> errors;
    servers.settle({each}, 1, errors);
    journal.end(each.closure, errors.at(0) ? unsettled_error(errors[0]) : nullptr);
  }
  // Those that had a number and were not decided are below: each process has its own range.
  servers.begin_closures_behind(journal.last_closure());
  std::vector<std::exception_ptr> none;
  servers.settle({}, servers.next_closure(), none);
}

ClosureEffects::ClosureEffects(std::shared_ptr<ParameterServers> servers,
                               std::shared_ptr<Journal> journal)
    : servers_(std::move(servers)), journal_(std::move(journal)) {}

void ClosureEffects::go_on() {
  if (servers_ != nullptr) servers_->release_drops();
  retry_ends();
}

uint64_t ClosureEffects::open(JournalKey key) {
  const base::MutexLock lock(mutex_);
  const uint64_t id = servers_->next_closure();
  commits_.open(id);
  if (!key.id.empty()) keys_[id] = std::move(key);
  return id;
}

std::exception_ptr ClosureEffects::cancel(uint64_t id, const std::exception_ptr& why) {
  bool is_decided = false;
  {
    const base::MutexLock lock(mutex_);
    is_decided = commits_.is_decided(id);
  }
  end(id);
  return is_decided ? unsettled_error(why) : why;
}

uint64_t ClosureEffects::begin(int worker, uint64_t id) {
  const base::MutexLock lock(mutex_);
  return running_[worker][id] = commits_.begin(id);
}

void ClosureEffects::lose_worker(int worker) {
  const base::MutexLock lock(mutex_);
  for (const auto& [id, attempt] : std::exchange(running_[worker], {})) commits_.lose(id);
}

void ClosureEffects::end(uint64_t id) {
  const base::MutexLock lock(mutex_);
  keys_.erase(id);
  // Else servers would let go of what the next coordinator is to tell them.
  if (commits_.is_decided(id) && settled_.erase(id) == 0) {
    ended_.insert(id);
    return;
  }
  commits_.end(id);
}

void ClosureEffects::retry_ends() {
  std::map<uint64_t, std::exception_ptr> unwritten;
  {
    const base::MutexLock lock(mutex_);
    if (unwritten_.empty() || std::chrono::steady_clock::now() < retries_at_) return;
    unwritten = unwritten_;
  }
  for (const auto& [closure, error] : unwritten) {
    try {
      journal_->end(closure, error);
    } catch (const Error&) {
      const base::MutexLock lock(mutex_);
      retries_at_ = std::chrono::steady_clock::now() + kRetryPause;
      return;
    }
    const base::MutexLock lock(mutex_);
    if (unwritten_.erase(closure) == 0) continue;  // another thread was quicker
    if (ended_.erase(closure) > 0) {
      commits_.end(closure);
    } else {
      settled_.insert(closure);
    }
  }
}

void ClosureEffects::settle(int worker, RunAnswer& answer, const std::function<bool()>& goes_on) {
  retry_ends();
  std::vector<ClosureSettlement> all;
  std::vector<CallAnswer*> answers;
  std::vector<JournalKey> keys;  // which may be cancelled, and forgotten, from here on
  // Of a coordinator of this process before this one, too, which has left some to the next process.
  uint64_t floor = journal_ ? journal_->first_open() : ~uint64_t{0};
  {
    const base::MutexLock lock(mutex_);
    const auto attempts = std::exchange(running_[worker], {});
    for (CallAnswer& each : answer.calls) {
      const auto attempt = attempts.find(each.id);
      if (attempt == attempts.end()) continue;
      if (each.state != CallAnswer::State::kValue) {
        commits_.lose(each.id);
      } else if (commits_.decide(each.id, attempt->second)) {
        all.push_back({.closure = each.id, .attempt = attempt->second, .counts = each.prepared});
        answers.push_back(&each);
        const auto key = keys_.find(each.id);
        keys.push_back(key == keys_.end() ? JournalKey() : key->second);
      }
    }
    floor = std::min(floor, commits_.floor());
    // Functions that have thrown are behind them: the servers let go of what they had prepared.
    if (all.empty() && (attempts.empty() || floor == told_)) return;
    told_ = floor;
  }
  base::failpoint("coordinator.settles");
  std::vector<std::exception_ptr> errors;
  bool is_told = false;
  try {
    write_down(all, keys, answers);
    base::failpoint("coordinator.decided");
    is_told = tell(all, floor, errors, goes_on);
    base::failpoint("coordinator.settled");
  } catch (const Error&) {
    errors.assign(all.size(), std::current_exception());
  }
  std::set<uint64_t> over;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool is_over = write_end(all[i].closure, is_told, errors[i]);
    if (is_over) over.insert(all[i].closure);
    if (!errors[i]) continue;
    answers[i]->state = CallAnswer::State::kError;
    answers[i]->error = unsettled_error(errors[i], is_over ? kFromCheckpoint : kByNextChief);
  }
  const base::MutexLock lock(mutex_);
  settled_.merge(over);
}

// What is not over is the next coordinator's, and so servers keep what they have of it.
bool ClosureEffects::write_end(uint64_t closure, bool is_told, std::exception_ptr& error) {
  if (!journal_) return true;
  // Nobody will ever tell them what does not stand there: they let go of it.
  if (!is_told) return journal_->is_undecided(closure);
  const std::exception_ptr end = error ? unsettled_error(error) : nullptr;
  try {
    journal_->end(closure, end);
    return true;
  } catch (const Error&) {
    if (!error) error = std::current_exception();
  }
  const base::MutexLock lock(mutex_);
  unwritten_[closure] = end;
  return false;
}

// Before anybody is told: who comes after this process tells it then.
void ClosureEffects::write_down(const std::vector<ClosureSettlement>& all,
                                const std::vector<JournalKey>& keys,
                                const std::vector<CallAnswer*>& answers) {
  if (!journal_) return;
  for (std::size_t i = 0; i < all.size(); ++i) {
    journal_->decide(keys[i], all[i], answers[i]->value);
  }
}

// It is decided, and so is told until all have heard it: nothing else can end it.
bool ClosureEffects::tell(const std::vector<ClosureSettlement>& all, uint64_t floor,
                          std::vector<std::exception_ptr>& errors,
                          const std::function<bool()>& goes_on) {
  const auto limit = std::chrono::steady_clock::now() + kMostSettling;
  while (true) {
    std::exception_ptr why;
    bool may_come_back = false;
    try {
      servers_->settle(all, floor, errors);
      return true;
    } catch (const Error& e) {
      why = std::current_exception();
      may_come_back =
          e.code() == ErrorCode::kUnavailable || e.code() == ErrorCode::kDeadlineExceeded;
    } catch (...) {
      why = std::current_exception();
    }
    const bool is_time = !all.empty() && std::chrono::steady_clock::now() < limit;
    if (may_come_back && is_time && goes_on()) continue;
    errors.assign(all.size(), why);
    return !may_come_back;
  }
}

}  // namespace cohort::internal::coordinator
