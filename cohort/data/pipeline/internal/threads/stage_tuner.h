// SPDX-License-Identifier: Apache-2.0
//
// kAutotune while a pass runs: measures a step for its ParallelismTuner, on the threads that are
// there anyway.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "cohort/data/core/internal/consumer_wait.h"
#include "cohort/data/core/internal/core_budget.h"
#include "cohort/data/pipeline/internal/threads/parallelism_tuner.h"

namespace cohort::internal::data {

class Pass;

/// The most calls at once of a step whose calls wait for something: more threads than cores.
int most_blocking_calls();

/// Threads: reader_* for the reader only, the rest thread-safe.
class StageTuner {
 public:
  /// For the pass of this thread. `most`: calls at once.
  explicit StageTuner(int most);
  ~StageTuner();
  StageTuner(const StageTuner&) = delete;
  StageTuner& operator=(const StageTuner&) = delete;

  /// Times one call, if it is one that is to be timed: short ones only now and then. The thread's
  /// own clock tells computing from waiting.
  class [[nodiscard]] CallTimer {
   public:
    explicit CallTimer(StageTuner* tuner);  ///< Null: does nothing.
    ~CallTimer();
    CallTimer(const CallTimer&) = delete;
    CallTimer& operator=(const CallTimer&) = delete;

   private:
    StageTuner* tuner_;
    std::chrono::steady_clock::time_point begin_{};
    int64_t processor_ns_ = 0;
    int64_t switches_ = 0;
  };

  /// The reader got an element, after it waited so long for background threads. Returns the
  /// setting, seldom another one than before. At setting 1 the calls count as waiting.
  int reader_got_one(std::chrono::nanoseconds waited);

  /// What steps below this one go by.
  const std::shared_ptr<ConsumerWait>& consumer_wait() const { return consumer_wait_; }

 private:
  bool samples();
  TuneWindow take_window(std::chrono::nanoseconds elapsed);
  int decide(const TuneWindow& window);

  const std::shared_ptr<Pass> pass_;
  const std::shared_ptr<const ConsumerWait> reader_;
  const std::shared_ptr<ConsumerWait> consumer_wait_;
  const int most_;
  ParallelismTuner tuner_;
  CoreBudget::Use use_;

  // The reader's. A window begins at its first element.
  std::chrono::steady_clock::time_point begin_{};
  int64_t outputs_ = -1;
  int64_t next_look_ = 0;
  std::chrono::nanoseconds waited_{0};

  std::atomic<int64_t> calls_{0};
  std::atomic<int64_t> every_{1};  ///< Which calls are timed.
  // Of timed calls.
  std::atomic<int64_t> timed_{0};
  std::atomic<int64_t> busy_ns_{0};
  std::atomic<int64_t> processor_ns_{0};
  std::atomic<int64_t> switches_{0};
};

}  // namespace cohort::internal::data
