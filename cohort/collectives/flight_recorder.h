// SPDX-License-Identifier: Apache-2.0
//
// What a rank has lately called together with the others, and how long it waited for them: what is
// read when a job hangs or dies, and what says who is slow.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "cohort/base/mutex.h"
#include "cohort/collectives/transport.h"

namespace cohort::internal::collectives {

/// How long the last steps took, but for the first ones of a job; means of a window of them.
struct Pace {
  static constexpr uint64_t kSteps = 8;  ///< Of a window.
  uint64_t window = 0;                   ///< Counts them; 0: none yet.
  std::chrono::nanoseconds own{};        ///< Of a step, without what the others were waited for.
  std::chrono::nanoseconds waited{};

  std::string text() const;
  /// No window if it is none.
  static Pace of(const std::string& text);
};

/// Threads: thread-safe. Cost: each note a clock and a mutex that is nearly always free.
class FlightRecorder {
 public:
  static constexpr std::size_t kKept = 256;

  void started(const ExchangeKey& key, const CallSignature& signature);
  /// The same of one that was started just now and is waited for from now on.
  void started_and_waits(const ExchangeKey& key, const CallSignature& signature,
                         std::chrono::steady_clock::time_point now);
  void waits(const ExchangeKey& key);
  /// What was waited for has come, or will not.
  void ended(const ExchangeKey& key, bool good);
  /// From here to the next one is one step.
  void step_begins();

  /// "all_reduce(sum of float32, 40 bytes) for 3.2 s"; empty: this rank waits for nobody.
  std::string waiting() const;
  /// The newest `most` calls, a line each, the newest first.
  std::string text(std::size_t most = kKept) const;
  Pace pace() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class State : uint8_t { kStarted, kWaits, kDone, kFailed };
  struct Call {
    uint64_t number = 0;  // 0: none
    uint64_t step = 0;
    ExchangeKey key = {};
    CallSignature signature = {};
    State state = State::kStarted;
    Clock::time_point started = {};
    Clock::time_point waits_from = {};
    Clock::duration waited{};
  };
  Call& add(const ExchangeKey& key, const CallSignature& signature, Clock::time_point now)
      COHORT_REQUIRES(mutex_);
  static std::string line_of(const Call& call, Clock::time_point now);
  Call* find(const ExchangeKey& key) COHORT_REQUIRES(mutex_);

  mutable base::Mutex mutex_;
  std::array<Call, kKept> calls_ COHORT_GUARDED_BY(mutex_) = {};
  uint64_t count_ COHORT_GUARDED_BY(mutex_) = 0;

  uint64_t steps_ COHORT_GUARDED_BY(mutex_) = 0;
  Clock::time_point window_began_ COHORT_GUARDED_BY(mutex_) = {};
  Clock::duration waited_in_window_ COHORT_GUARDED_BY(mutex_){};
  Pace pace_ COHORT_GUARDED_BY(mutex_) = {};
};

/// Notes what goes through a transport.
std::unique_ptr<Transport> recorded(std::unique_ptr<Transport> transport,
                                    std::shared_ptr<FlightRecorder> recorder);

}  // namespace cohort::internal::collectives
