// SPDX-License-Identifier: Apache-2.0
//
// For tests: several workers in one process. Each worker is a strategy of its own that is told its
// layout, on a thread of its own; they agree on the end of the data and on rows, and nothing else.
//
//   Workers workers(2, 2);   // two workers of two replicas
//   auto rows = workers.run([](const Strategy& s) { ... s.distribute_dataset(batches) ... });
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/strategy/internal/local_strategy.h"
#include "cohort/strategy/strategy.h"

namespace cohort::testing {

/// Where so many threads meet; each gets the sum of what all bring.
class WorkersMeeting {
 public:
  explicit WorkersMeeting(int workers) : workers_(workers) {}

  int64_t sum(int64_t here) {
    std::unique_lock lock(mutex_);
    sum_ += here;
    if (++arrived_ == workers_) {
      result_ = std::exchange(sum_, 0);
      arrived_ = 0;
      ++round_;
      lock.unlock();
      all_arrived_.notify_all();
      return result_;
    }
    all_arrived_.wait(lock, [&, round = round_] { return round_ != round; });
    return result_;  // Nobody ends the next round before this one is here again.
  }

 private:
  const int workers_;
  std::mutex mutex_;
  std::condition_variable all_arrived_;
  // Guarded by mutex_.
  int arrived_ = 0;
  int round_ = 0;
  int64_t sum_ = 0;
  int64_t result_ = 0;
};

/// The strategy of one of several workers, as it is told by its layout. What is agreed on goes
/// through a meeting of this process.
class WorkerStrategy final : public internal::LocalStrategy {
 public:
  WorkerStrategy(internal::LocalStrategyOptions options, std::shared_ptr<WorkersMeeting> meeting)
      : LocalStrategy(std::move(options)), meeting_(std::move(meeting)) {}

 protected:
  bool do_any_worker(bool here) override { return meeting_->sum(here ? 1 : 0) > 0; }
  int64_t do_sum_of_workers(int64_t here) override { return meeting_->sum(here); }

 private:
  const std::shared_ptr<WorkersMeeting> meeting_;
};

class Workers {
 public:
  Workers(int workers, int replicas) {
    const auto meeting = std::make_shared<WorkersMeeting>(workers);
    std::vector<Device> devices;
    for (int r = 0; r < replicas; ++r) devices.emplace_back("CPU:" + std::to_string(r));
    for (int w = 0; w < workers; ++w) {
      strategies_.emplace_back(std::make_shared<WorkerStrategy>(
          internal::LocalStrategyOptions{
              .name = "WorkerStrategy", .devices = devices, .worker = w, .workers = workers},
          meeting));
    }
  }

  const Strategy& operator[](std::size_t worker) const { return strategies_[worker]; }

  /// play(strategy) of every worker at the same time; the results in the order of the workers.
  /// Errors: the lowest worker's.
  template <class Play>
  auto run(const Play& play) const {
    using Result = decltype(play(strategies_[0]));
    std::vector<std::optional<Result>> results(strategies_.size());
    std::vector<std::exception_ptr> errors(strategies_.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t w = 0; w < strategies_.size(); ++w) {
        threads.emplace_back([&, w] {
          try {
            results[w].emplace(play(strategies_[w]));
          } catch (...) {
            errors[w] = std::current_exception();
          }
        });
      }
    }
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
    std::vector<Result> out;
    for (std::optional<Result>& result : results) out.push_back(std::move(*result));
    return out;
  }

 private:
  std::vector<Strategy> strategies_;
};

}  // namespace cohort::testing
