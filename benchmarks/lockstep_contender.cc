// SPDX-License-Identifier: Apache-2.0
#include "lockstep_contender.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "cohort/runtime/relax.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kFlopsPerNanosecond = 30;
constexpr int kLooks = 20'000;  // some 100 us, then the core is given away

// Additions that depend on each other: as long on every core, whatever its caches hold.
double add_up(std::int64_t additions) {
  volatile double start = 1e-9;
  const double step = start;
  double sum = 0;
  for (std::int64_t i = 0; i < additions; ++i) sum += step;
  return sum;
}

double additions_per_nanosecond() {
  constexpr std::int64_t kAdditions = 2'000'000;
  double best = 0;
  for (int i = 0; i < 5; ++i) {  // the fastest has met nobody
    const auto start = Clock::now();
    volatile double sum = add_up(kAdditions);
    static_cast<void>(sum);
    const std::chrono::duration<double, std::nano> took = Clock::now() - start;
    best = std::max(best, static_cast<double>(kAdditions) / took.count());
  }
  return best;
}

// All threads of a step have come when `passed` moves on.
class MeetingPlace {
 public:
  explicit MeetingPlace(int threads) : threads_(threads) {}

  void meet() {
    const int step = passed_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      passed_.fetch_add(1, std::memory_order_release);
      passed_.notify_all();
      return;
    }
    for (int look = 0; look < kLooks; ++look) {
      if (passed_.load(std::memory_order_acquire) != step) return;
      internal::runtime::relax();
    }
    passed_.wait(step, std::memory_order_acquire);
  }

 private:
  const int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<int> passed_{0};
};

class LockstepContender final : public Contender {
 public:
  void init(const Workload& workload) override {
    const Case& c = workload.benchmark_case();
    threads_ = c.replicas;
    const double nanoseconds = product_flops(c) / kFlopsPerNanosecond;
    additions_ = std::llround(nanoseconds * additions_per_nanosecond());
  }

  void reset() override {}

  StepTime run(std::int64_t steps) override {
    MeetingPlace place(threads_);
    std::atomic<double> total = 0;
    const auto replica = [&] {
      double sum = 0;
      for (std::int64_t i = 0; i < steps; ++i) {
        sum += add_up(additions_);
        place.meet();
      }
      total = sum;
    };
    const auto start = Clock::now();
    {
      std::vector<std::jthread> others;
      for (int i = 1; i < threads_; ++i) others.emplace_back(replica);
      replica();
    }
    const std::chrono::nanoseconds took = Clock::now() - start;
    return {took.count(), total};
  }

 private:
  int threads_ = 1;
  std::int64_t additions_ = 0;
};

}  // namespace

std::unique_ptr<Contender> make_lockstep_contender() {
  return std::make_unique<LockstepContender>();
}

}  // namespace cohort::bench
