// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/closure_effects.h"

#include <atomic>
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

// Never one for which a function is run again: some of it is done.
std::exception_ptr unsettled_error(const std::exception_ptr& why) {
  return std::make_exception_ptr(
      Error(ErrorCode::kUnknown,
            str_cat("[schedule_exactly_once] expected all parameter servers to do what the "
                    "function has changed, of which some may be done, and which is not done again; "
                    "start the job again, from its last checkpoint. Got: ",
                    text_of(why))));
}

}  // namespace

uint64_t next_closure() {
  using std::chrono::microseconds;
  static std::atomic<uint64_t> last{static_cast<uint64_t>(
      std::chrono::duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count())};
  return ++last;
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "something that is no std::exception";
  }
}

ClosureEffects::ClosureEffects(std::shared_ptr<ParameterServers> servers)
    : servers_(std::move(servers)) {}

void ClosureEffects::open(uint64_t id) {
  const base::MutexLock lock(mutex_);
  commits_.open(id);
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
  commits_.end(id);
}

void ClosureEffects::settle(int worker, RunAnswer& answer, const std::function<bool()>& goes_on) {
  std::vector<ClosureSettlement> all;
  std::vector<CallAnswer*> answers;
  uint64_t floor = 0;
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
      }
    }
    floor = commits_.floor();
    // Functions that have thrown are behind them: the servers let go of what they had prepared.
    if (all.empty() && (attempts.empty() || floor == told_)) return;
    told_ = floor;
  }
  base::failpoint("coordinator.settles");
  std::vector<std::exception_ptr> errors;
  tell(all, floor, errors, goes_on);
  base::failpoint("coordinator.settled");
  const base::MutexLock lock(mutex_);
  for (std::size_t i = 0; i < all.size(); ++i) {
    commits_.end(all[i].closure);
    if (!errors[i]) continue;
    answers[i]->state = CallAnswer::State::kError;
    answers[i]->error = unsettled_error(errors[i]);
  }
}

// It is decided, and so is told until all have heard it: nothing else can end it.
void ClosureEffects::tell(const std::vector<ClosureSettlement>& all, uint64_t floor,
                          std::vector<std::exception_ptr>& errors,
                          const std::function<bool()>& goes_on) {
  const auto limit = std::chrono::steady_clock::now() + kMostSettling;
  while (true) {
    std::exception_ptr why;
    bool may_come_back = false;
    try {
      return servers_->settle(all, floor, errors);
    } catch (const Error& e) {
      why = std::current_exception();
      may_come_back =
          e.code() == ErrorCode::kUnavailable || e.code() == ErrorCode::kDeadlineExceeded;
    } catch (...) {
      why = std::current_exception();
    }
    const bool is_time = !all.empty() && std::chrono::steady_clock::now() < limit;
    if (may_come_back && is_time && goes_on()) continue;
    return errors.assign(all.size(), why);
  }
}

}  // namespace cohort::internal::coordinator
