// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/pipeline/internal/threads/stage_tuner.h"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cmath>

#include "cohort/data/core/internal/pass.h"
#include "cohort/runtime/topology.h"

namespace cohort::internal::data {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::chrono::milliseconds kWindow{20};
constexpr int64_t kLeastOutputs = 4;
/// About so many calls of a window are timed: timing one takes two microseconds.
constexpr double kTimedCalls = 32;
/// Below this the reader of the reader does not wait.
constexpr double kCalmReader = 0.05;

int64_t processor_time_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// How often the thread gave up its core to wait.
int64_t voluntary_switches() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

}  // namespace

int most_blocking_calls() { return std::max(64, 4 * runtime::usable_cores()); }

StageTuner::StageTuner(int most)
    : pass_(Pass::current()),
      reader_(current_consumer_wait()),
      consumer_wait_(std::make_shared<ConsumerWait>(reader_)),
      most_(most) {}

StageTuner::~StageTuner() { pass_->cores().change(use_, {}); }

bool StageTuner::samples() {
  const int64_t every = every_.load(std::memory_order_relaxed);
  return calls_.fetch_add(1, std::memory_order_relaxed) % every == 0;
}

StageTuner::CallTimer::CallTimer(StageTuner* tuner)
    : tuner_(tuner != nullptr && tuner->samples() ? tuner : nullptr) {
  if (tuner_ == nullptr) return;
  switches_ = voluntary_switches();
  processor_ns_ = processor_time_ns();
  begin_ = Clock::now();
}

StageTuner::CallTimer::~CallTimer() {
  if (tuner_ == nullptr) return;
  const std::chrono::nanoseconds busy = Clock::now() - begin_;
  tuner_->processor_ns_ += processor_time_ns() - processor_ns_;
  tuner_->switches_ += voluntary_switches() - switches_;
  tuner_->busy_ns_ += busy.count();
  ++tuner_->timed_;
}

int StageTuner::reader_got_one(std::chrono::nanoseconds waited) {
  waited_ += waited;
  if (++outputs_ < next_look_) return tuner_.setting();
  const auto now = Clock::now();
  if (outputs_ <= 0) {
    begin_ = now;
    static_cast<void>(take_window(kWindow));  // What came before does not count.
    next_look_ = 1;
    return tuner_.setting();
  }
  const std::chrono::nanoseconds elapsed = now - begin_;
  const int64_t least = std::max<int64_t>(kLeastOutputs, 2 * tuner_.setting());
  if (elapsed >= kWindow && outputs_ >= least) {
    begin_ = now;
    return decide(take_window(elapsed));
  }
  // The next look at the clock comes about half way to the end of the window, if elements go on
  // coming as they did; what was ready at its beginning says little about that.
  const int64_t left = std::max<int64_t>(0, std::chrono::nanoseconds(kWindow - elapsed).count());
  const int64_t pace = outputs_ * left / std::max<int64_t>(1, 2 * elapsed.count());
  next_look_ = outputs_ + std::clamp<int64_t>(pace, 1, outputs_);
  return tuner_.setting();
}

TuneWindow StageTuner::take_window(std::chrono::nanoseconds elapsed) {
  const auto calls = static_cast<double>(calls_.exchange(0));
  const auto timed = static_cast<double>(timed_.exchange(0));
  const double all = timed > 0 ? calls / timed : 0;
  every_.store(std::max<int64_t>(1, std::lround(calls / kTimedCalls)), std::memory_order_relaxed);
  TuneWindow window{.seconds = Seconds(elapsed).count(), .outputs = std::max<int64_t>(0, outputs_)};
  window.busy = 1e-9 * all * static_cast<double>(busy_ns_.exchange(0));
  window.processor = 1e-9 * all * static_cast<double>(processor_ns_.exchange(0));
  window.blocks = 2 * static_cast<double>(switches_.exchange(0)) > timed;
  // A call that computes and is slow for want of a core says nothing about the step.
  if (!window.blocks) window.busy = window.processor;
  window.waited = tuner_.setting() == 1 ? window.busy : Seconds(waited_).count();
  outputs_ = 0;
  next_look_ = 1;
  waited_ = {};
  return window;
}

int StageTuner::decide(const TuneWindow& window) {
  // Where this step's own thread is the reader's, steps below are read by whoever reads this one.
  consumer_wait_->set(tuner_.setting() == 1 ? 1 : window.waited / window.seconds);
  TuneWindow wanted = window;
  if (reader_ != nullptr && reader_->value() < kCalmReader) wanted.waited = 0;
  const int before = tuner_.setting();
  CoreBudget& cores = pass_->cores();
  const int most = cores.calls_for(use_, most_);
  const int setting = tuner_.decide(wanted, cores.cores_for(use_), most);
  cores.change(use_,
               setting > 1 ? CoreBudget::Use{tuner_.cores_used(), setting} : CoreBudget::Use{});
  // The first elements after a change are none of the new setting.
  if (setting != before) outputs_ = -setting;
  if (setting != before) next_look_ = 0;
  return setting;
}

}  // namespace cohort::internal::data
