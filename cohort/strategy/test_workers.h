// SPDX-License-Identifier: Apache-2.0
//
// For tests: several workers in one process. Each worker is a strategy of its own with a
// communicator to the others, whose messages meet in memory, on a thread of its own.
//
//   Workers workers(2, 2);   // two workers of two replicas
//   auto rows = workers.run([](const Strategy& s) { ... s.distribute_dataset(batches) ... });
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/collectives/transports/threads/thread_job.h"
#include "cohort/strategy/internal/local_strategy.h"
#include "cohort/strategy/strategy.h"

namespace cohort::testing {

class Workers {
 public:
  /// `ops`: the program's own, of all of them. `kind`: of the replicas' devices.
  Workers(int workers, int replicas, internal::collectives::CommunicatorOptions options = {},
          std::shared_ptr<CrossDeviceOps> ops = {}, const std::string& kind = "CPU:")
      : job_(std::make_unique<internal::collectives::ThreadJob>(workers, options)) {
    for (int w = 0; w < workers; ++w) {
      strategies_.emplace_back(std::make_shared<internal::strategy::LocalStrategy>(
          internal::strategy::LocalStrategyOptions{.name = "WorkerStrategy",
                                                   .devices = devices(replicas, kind),
                                                   .cross_device_ops = ops,
                                                   .workers_here = workers,
                                                   .communicator = job_->share(w)}));
    }
  }

  /// Worker `worker` of those that nothing connects.
  static Strategy alone(int worker, int workers, int replicas) {
    return Strategy(std::make_shared<internal::strategy::LocalStrategy>(
        internal::strategy::LocalStrategyOptions{.name = "WorkerStrategy",
                                                 .devices = devices(replicas),
                                                 .worker = worker,
                                                 .workers = workers}));
  }

  const Strategy& operator[](std::size_t worker) const { return strategies_[worker]; }
  internal::collectives::ThreadJob& job() const { return *job_; }

  /// play(strategy) of every worker at the same time; the results in the order of the workers. What
  /// one worker throws ends what the others wait for.
  /// Errors: the lowest worker's.
  template <class Play>
  auto run(const Play& play) const {
    using Result = decltype(play(strategies_[0]));
    std::vector<std::optional<Result>> results(strategies_.size());
    const auto errors = job_->try_run([&](internal::collectives::Communicator& communicator) {
      const auto w = static_cast<std::size_t>(communicator.rank());
      results[w].emplace(play(strategies_[w]));
    });
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
    std::vector<Result> out;
    for (std::optional<Result>& result : results) out.push_back(std::move(*result));
    return out;
  }
  /// The same of what returns nothing.
  template <class Play>
  void each(const Play& play) const {
    run([&](const Strategy& strategy) {
      play(strategy);
      return true;
    });
  }

 private:
  static std::vector<Device> devices(int replicas, const std::string& kind = "CPU:") {
    std::vector<Device> out;
    for (int r = 0; r < replicas; ++r) out.emplace_back(kind + std::to_string(r));
    return out;
  }

  const std::unique_ptr<internal::collectives::ThreadJob> job_;
  std::vector<Strategy> strategies_;
};

}  // namespace cohort::testing
