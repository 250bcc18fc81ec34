// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/pipeline/internal/threads/parallelism_tuner.h"

#include <algorithm>
#include <cmath>

namespace cohort::internal::data {
namespace {

/// Shares of the time. A reader that waits less than kCalm does not wait; one background thread
/// less is fine where its work, done by the reader, would stay below that.
constexpr double kCalm = 0.05;
constexpr double kIdle = 0.03;
/// Threads that run less than this starve themselves: more would wait for the input.
constexpr double kStarved = 0.5;
/// An element on its way between threads costs about this many seconds.
constexpr double kHandOver = 4e-6;
/// A trial has to save this much of the waiting, and may not cost more than that of the time.
constexpr double kGain = 0.05;
constexpr double kLoss = 0.03;
/// Calls that are on a core for less than this share of their time gain from many threads.
constexpr double kMostlyWaits = 0.5;
/// Threads kept when the reader does not wait, by those that were needed. Waiting ones cost little,
/// and the more of them end together, the fewer times the reader is woken.
constexpr double kSpare = 1.3;
constexpr double kSpareWaiting = 2.0;
constexpr int kPause = 3;
constexpr int64_t kFirstPenalty = 4;
constexpr int64_t kMostPenalty = 256;

}  // namespace

int ParallelismTuner::decide(const TuneWindow& window, double cores, int most) {
  if (window.outputs == 0 || window.seconds <= 0) return setting_;
  if (window.busy > 0) {
    // Threads that compute share cores when these are scarce: that is no waiting.
    share_ = window.blocks ? std::clamp(window.processor / window.busy, 1e-3, 1.0) : 1.0;
  }
  const auto outputs = static_cast<double>(window.outputs);
  const Score score{window.waited / outputs, window.seconds / outputs};
  most = limit(cores, most);
  // A window without waiting may only be a pause of the reader: it takes several to count.
  const bool calm = window.waited < kCalm * window.seconds;
  const double needed = window.busy / window.seconds;
  needed_ = calm_ == 0 ? needed : std::max(needed_, needed);
  calm_ = calm ? calm_ + 1 : 0;
  if (calm && calm_ < kPause) return setting_ = std::min(setting_, most);
  if (trial_) setting_ = judge(score);
  if (setting_ > most) {
    setting_ = most;
  } else if (calm) {
    calm_ = 0;
    setting_ = lower();
  } else if (patience_ > 0) {
    --patience_;
  } else {
    setting_ = raise(window, score, most);
  }
  return setting_;
}

int ParallelismTuner::limit(double cores, int most) const {
  const double calls = std::ceil(std::max(1.0, cores) / share_ - 1e-9);
  return static_cast<int>(std::min<double>(most, calls));
}

int ParallelismTuner::judge(const Score& score) {
  trial_ = false;
  const bool better = score.waited <= (1 - kGain) * score_before_.waited &&
                      score.seconds <= (1 + kLoss) * score_before_.seconds;
  if (better) {
    penalty_ = kFirstPenalty;
    return setting_;
  }
  patience_ = penalty_;
  penalty_ = std::min(2 * penalty_, kMostPenalty);
  return before_;
}

int ParallelismTuner::raise(const TuneWindow& window, const Score& score, int limit) {
  const auto outputs = static_cast<double>(window.outputs);
  if (setting_ >= limit || window.busy < kHandOver * outputs) return setting_;
  if (setting_ > 1 && window.busy < kStarved * setting_ * window.seconds) return setting_;
  trial_ = true;
  before_ = setting_;
  score_before_ = score;
  return std::min(limit, share_ < kMostlyWaits ? 2 * setting_ : setting_ + 1);
}

int ParallelismTuner::lower() {
  patience_ = 0;
  if (needed_ < kIdle) return 1;
  const double spare = share_ < kMostlyWaits ? kSpareWaiting : kSpare;
  const int enough = std::max(2, static_cast<int>(std::ceil(spare * needed_)));
  return std::min(setting_, enough);
}

}  // namespace cohort::internal::data
