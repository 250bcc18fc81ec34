// SPDX-License-Identifier: Apache-2.0
//
// How long a rank looks for what its peers are about to show, before it sleeps.
#pragma once

#include <chrono>

#include "cohort/base/function_ref.h"
#include "cohort/runtime/wait_word.h"

namespace cohort::internal::collectives {

/// Of ranks with a core each: looks. Of ranks that share cores: hands its core to the next one that
/// wants it, and looks when it is back, unless that was somebody who computes. Either learns from
/// what it has cost (SpinBudget). Threads: bound to one.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  /// What passes the time between two looks; a test has its own.
  struct Means {
    Clock::time_point (*now)();
    void (*relax)();
    void (*yield)();
    static Means of_system();
  };
  /// To sleep and to be woken takes some 5 us, on both sides: what looks for as long never loses
  /// more than twice what it could have. With less, one wait that was in vain (a rank lost its core
  /// for a moment) could make all ranks sleep ever after: who is to be woken is too late for who
  /// looks.
  static constexpr std::chrono::microseconds kLooksFor{10};
  /// Who hands its core on sees no deadline, and no failure that others tell it of by a message,
  /// until it is back for good.
  static constexpr std::chrono::milliseconds kYieldsFor{1};

  /// `most_looks`: see runtime::most_spins(); 0: cores are shared.
  explicit Patience(int most_looks, const Means& means = Means::of_system())
      : means_(means), looks_(most_looks) {}

  /// Looks until it is over; calls `meanwhile` after each look that was in vain. False: it takes
  /// long, and whoever waits had better sleep.
  bool look_for(base::FunctionRef<bool()> is_over, base::FunctionRef<void()> meanwhile);
  /// For waits of another kind.
  runtime::SpinBudget& looks() { return looks_; }

 private:
  bool spin(int looks, base::FunctionRef<bool()> is_over, base::FunctionRef<void()> meanwhile);
  bool yield(base::FunctionRef<bool()> is_over, base::FunctionRef<void()> meanwhile);

  // Each is a system call, and most of the time a change of threads: some 100 us together.
  static constexpr int kMostYields = 100;
  const Means means_;
  runtime::SpinBudget looks_;
  runtime::SpinBudget yields_{kMostYields};
  int rest_ = 0;       // so many waits go by without a yield,
  int next_rest_ = 0;  // and so many after the next that was long
};

}  // namespace cohort::internal::collectives
