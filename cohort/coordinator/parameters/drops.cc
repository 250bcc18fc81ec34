// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/drops.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/coordinator/parameters/calls.h"
#include "cohort/runtime/thread_name.h"

namespace cohort::internal::coordinator {
namespace {

constexpr std::chrono::milliseconds kDropPause{100};

}  // namespace

Drops::Drops(const std::vector<std::unique_ptr<CallNumbers>>& servers, Options options)
    : servers_(servers), options_(options) {}

Drops::~Drops() {
  std::thread thread;
  {
    const base::MutexLock lock(mutex_);
    ends_ = true;
    changed_.notify_all();
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
}

void Drops::add(One one) {
  const base::MutexLock lock(mutex_);
  if (holds_) {
    held_.push_back(std::move(one));
    has_held_ = true;
    return;
  }
  added_.push_back(std::move(one));
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

void Drops::hold() {
  const base::MutexLock lock(mutex_);
  holds_ = true;
}

void Drops::release() {
  if (!has_held_.load(std::memory_order_relaxed)) return;
  const base::MutexLock lock(mutex_);
  added_.insert(added_.end(), std::make_move_iterator(held_.begin()),
                std::make_move_iterator(held_.end()));
  held_.clear();
  has_held_ = false;
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

void Drops::wait() {
  release();
  wait_for_told();
}

void Drops::wait_for_told() {
  const base::MutexLock lock(mutex_);
  changed_.wait(mutex_, [this]() COHORT_REQUIRES(mutex_) { return added_.empty() && !is_busy_; });
}

void Drops::wait_to_end() {
  {
    const base::MutexLock lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  wait_for_told();
}

uint64_t Drops::given_up(const std::string& key) const {
  const base::MutexLock lock(mutex_);
  const auto found = given_up_.find(key);
  return found == given_up_.end() ? 0 : found->second;
}

void Drops::forget(const std::string& key) {
  const base::MutexLock lock(mutex_);
  given_up_.erase(key);
}

// What has been added is told, also when this object ends.
void Drops::run() {
  runtime::set_thread_name("cohort-drops");
  while (true) {
    std::vector<One> all;
    {
      const base::MutexLock lock(mutex_);
      changed_.wait(mutex_, [this]() COHORT_REQUIRES(mutex_) { return ends_ || !added_.empty(); });
      if (added_.empty()) return;
      all.swap(added_);
      is_busy_ = true;
    }
    const auto until = Clock::now() + options_.all_tries;
    do {
      all = tell(all);
    } while (!all.empty() && retries(until));
    const base::MutexLock lock(mutex_);
    for (const One& each : all) {
      if (!each.key.empty()) {
        given_up_[each.key] = std::max(given_up_[each.key], each.generation);
      }
    }
    is_busy_ = false;
    changed_.notify_all();
  }
}

// Those of which it is not known whether they have been heard.
std::vector<Drops::One> Drops::tell(const std::vector<One>& all) {
  std::deque<Calls> calls;
  std::vector<One> left;
  const auto attempt = [&left](const One& one, const auto& work) {
    try {
      work();
    } catch (const Error& e) {
      const bool is_heard = e.code() != ErrorCode::kUnavailable &&
                            e.code() != ErrorCode::kDeadlineExceeded &&
                            e.code() != ErrorCode::kCancelled;
      if (!is_heard) left.push_back(one);
    }
  };
  for (const One& each : all) {
    Calls& own = calls.emplace_back(options_.one_try);
    attempt(each, [&] { own.start_once(*servers_[each.server], each.method, each.request); });
  }
  // A call that could not begin has nothing to wait for.
  for (std::size_t i = 0; i < all.size(); ++i) attempt(all[i], [&] { calls[i].wait(); });
  return left;
}

bool Drops::retries(Clock::time_point until) {
  const base::MutexLock lock(mutex_);
  if (ends_ || Clock::now() >= until) return false;
  changed_.wait_for(mutex_, kDropPause, [this]() COHORT_REQUIRES(mutex_) { return ends_; });
  return !ends_;
}

}  // namespace cohort::internal::coordinator
