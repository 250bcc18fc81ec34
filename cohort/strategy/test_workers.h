// SPDX-License-Identifier: Apache-2.0
//
// For tests: the input of several workers in one process. Each worker is a strategy with its own
// replicas that says it has one of the pipelines; nothing but the end of the data is agreed on.
//
//   Workers workers(2, 2);   // two workers of two replicas
//   auto rows = workers.run([](const Strategy& s) { ... s.distribute_dataset(batches) ... });
#pragma once

#include <condition_variable>
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

/// Asks so many threads; each waits for the answer of all.
class Vote {
 public:
  explicit Vote(int voters) : voters_(voters) {}

  bool any(bool here) {
    std::unique_lock lock(mutex_);
    yes_ = yes_ || here;
    if (++asked_ == voters_) {
      result_ = std::exchange(yes_, false);
      asked_ = 0;
      ++round_;
      lock.unlock();
      all_asked_.notify_all();
      return result_;
    }
    all_asked_.wait(lock, [&, round = round_] { return round_ != round; });
    return result_;  // Nobody begins the next round before this one is asked again.
  }

 private:
  const int voters_;
  std::mutex mutex_;
  std::condition_variable all_asked_;
  // Guarded by mutex_.
  int asked_ = 0;
  int round_ = 0;
  bool yes_ = false;
  bool result_ = false;
};

class WorkerStrategy final : public internal::LocalStrategy {
 public:
  WorkerStrategy(const InputContext& input, std::vector<Device> devices, std::shared_ptr<Vote> vote)
      : LocalStrategy({.name = "WorkerStrategy", .devices = std::move(devices)}),
        input_(input),
        vote_(std::move(vote)) {}

 protected:
  InputContext do_input_context() const override { return input_; }
  bool do_any_worker(bool here) override { return vote_->any(here); }

 private:
  const InputContext input_;
  const std::shared_ptr<Vote> vote_;
};

class Workers {
 public:
  Workers(int workers, int replicas) {
    const auto vote = std::make_shared<Vote>(workers);
    std::vector<Device> devices;
    for (int r = 0; r < replicas; ++r) devices.emplace_back("CPU:" + std::to_string(r));
    for (int w = 0; w < workers; ++w) {
      const InputContext input{.num_input_pipelines = workers,
                               .input_pipeline_id = w,
                               .num_replicas_in_sync = workers * replicas};
      strategies_.emplace_back(std::make_shared<WorkerStrategy>(input, devices, vote));
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
