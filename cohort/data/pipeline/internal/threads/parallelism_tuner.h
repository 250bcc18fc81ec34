// SPDX-License-Identifier: Apache-2.0
//
// kAutotune's decisions, apart from clocks and threads.
#pragma once

#include <cstdint>

namespace cohort::internal::data {

/// What a step and its reader did since the last decision.
struct TuneWindow {
  double seconds = 0;   ///< On the clock.
  int64_t outputs = 0;  ///< Elements that the reader got.
  /// The part of `seconds` that the reader spent waiting for this step, and in which whoever reads
  /// the reader waited too: nobody needs what is ready in time.
  double waited = 0;
  double busy = 0;       ///< Seconds in calls, summed over threads.
  double processor = 0;  ///< Of these, on a core.
  bool blocks = false;   ///< Calls give up their core: they wait for something.
};

/// Finds how many calls of a step run at once: one on the reader's own thread (1), or 2 and more on
/// background threads. It goes up while the reader waits and more calls make it wait less, goes
/// back where they do not (trying again ever more seldom), and down to what suffices when the
/// reader does not wait. Calls that compute never get more threads than cores; calls that wait get
/// as many as keep the cores computing.
/// Threads: thread-compatible. Pure: the same windows give the same decisions.
class ParallelismTuner {
 public:
  int setting() const { return setting_; }
  /// The setting from now on, at most `most`. `cores` are those that other steps have left.
  int decide(const TuneWindow& window, double cores, int most);
  /// Cores that the step takes.
  double cores_used() const { return setting_ * share_; }

 private:
  struct Score {
    double waited = 0;  ///< A second waited, for each element.
    double seconds = 0;
  };

  int limit(double cores, int most) const;
  int judge(const Score& score);
  int raise(const TuneWindow& window, const Score& score, int limit);
  int lower();

  int setting_ = 1;
  double share_ = 1;  ///< Of a core, that a call takes while it runs.
  bool trial_ = false;
  int before_ = 1;  ///< The trial.
  Score score_before_;
  int calm_ = 0;          ///< Windows in a row in which the reader did not wait.
  double needed_ = 0;     ///< Calls that ran at once, the most in these windows.
  int64_t patience_ = 0;  ///< Windows until the next trial.
  int64_t penalty_ = 4;   ///< Windows that the next failed trial costs.
};

}  // namespace cohort::internal::data
