// SPDX-License-Identifier: Apache-2.0
//
// For tests of optimizers: workers as threads of this process, with any transport between them.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/collectives/test_job.h"
#include "cohort/strategy/internal/local_strategy.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/deadline.h"
#include "cohort/variables/variable.h"

namespace cohort::keras {

constexpr int64_t kEachAlone = 64;  // bytes: every variable is a bucket, or several

inline std::vector<Device> devices_of(int replicas) {
  std::vector<Device> out;
  for (int r = 0; r < replicas; ++r) out.emplace_back("CPU:" + std::to_string(r));
  return out;
}

using Numbers = std::vector<double>;
/// Of all variables, in their order; of mirrored ones the first copy's.
inline Numbers numbers_of(const std::vector<Variable>& variables) {
  Numbers out;
  for (const Variable& v : variables) {
    for (const double x : to_vector<double>(v.value().to(kFloat64))) out.push_back(x);
  }
  return out;
}

/// The strategies of the workers of one job.
class WorkersOfTest {
 public:
  using Carrier = cohort::internal::collectives::Carrier;
  using Communicator = cohort::internal::collectives::Communicator;
  WorkersOfTest(int workers, int replicas, int64_t bytes_per_pack,
                Carrier carrier = Carrier::kThreads, bool bfloat16_gradients = false)
      : job(carrier, workers) {
    for (int w = 0; w < workers; ++w) {
      strategies_.emplace_back(std::make_shared<cohort::internal::strategy::LocalStrategy>(
          cohort::internal::strategy::LocalStrategyOptions{
              .name = "WorkerStrategy",
              .devices = devices_of(replicas),
              .workers_here = workers,
              .communicator = job.share(w),
              .bytes_per_pack = bytes_per_pack,
              .bfloat16_gradients = bfloat16_gradients}));
    }
  }
  /// play(strategy) on every worker. The error of each, if any.
  std::vector<std::exception_ptr> try_each(std::function<void(const Strategy&)> play) {
    constexpr std::chrono::seconds kLimit{90};
    return testing::run_with_deadline(
        kLimit, [&] { return job.try_run([&](Communicator& c) { play(of(c.rank())); }); });
  }
  void each(const std::function<void(const Strategy&)>& play) {
    for (const std::exception_ptr& error : try_each(play)) {
      if (error) std::rethrow_exception(error);
    }
  }
  const Strategy& of(int worker) const { return strategies_[static_cast<std::size_t>(worker)]; }

  cohort::internal::collectives::TestJob job;

 private:
  std::vector<Strategy> strategies_;
};

}  // namespace cohort::keras
