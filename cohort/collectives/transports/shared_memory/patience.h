// SPDX-License-Identifier: Apache-2.0
//
// How long a rank looks for what its peers are about to show, before it sleeps.
#pragma once

#include "cohort/base/function_ref.h"
#include "cohort/runtime/wait_word.h"

namespace cohort::internal::collectives {

/// Of ranks with a core each: looks. Of ranks that share cores: hands its core to the next one that
/// wants it, and looks when it is back, unless that was somebody who computes. Either learns from
/// what it has cost (SpinBudget). Threads: bound to one.
class Patience {
 public:
  /// `most_looks`: see runtime::most_spins(); 0: cores are shared.
  explicit Patience(int most_looks) : looks_(most_looks) {}

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
  runtime::SpinBudget looks_;
  runtime::SpinBudget yields_{kMostYields};
  int rest_ = 0;       // so many waits go by without a yield,
  int next_rest_ = 0;  // and so many after the next that was long
};

}  // namespace cohort::internal::collectives
