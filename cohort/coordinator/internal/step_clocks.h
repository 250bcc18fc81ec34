// SPDX-License-Identifier: Apache-2.0
//
// Which workers may begin another step, where none is to be far ahead of the slowest: stale
// synchronous parallel (Ho et al. 2013, "More Effective Distributed ML via a Stale Synchronous
// Parallel Parameter Server"). A worker's clock is how many steps it has ended.
//
//   StepClocks clocks(/*bound=*/1);
//   clocks.join(0);
//   clocks.join(1);
//   clocks.begin(0), clocks.end(0), clocks.begin(0), clocks.end(0);
//   clocks.may_begin(0);   // false: worker 1 has ended none
//   clocks.leave(1);       // it is lost
//   clocks.may_begin(0);   // true: the slowest that is there
//
// The slowest worker may always begin, so somebody goes on whoever is gone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace cohort::internal::coordinator {

/// Cost, of all: with a bound, looks at all workers. Threads: thread-compatible.
class StepClocks {
 public:
  /// Unset: everybody may, always.
  explicit StepClocks(std::optional<int> bound) : bound_(bound) {}
  bool is_bounded() const { return bound_.has_value(); }

  /// The worker takes part, from the slowest's clock on. One that does already: nothing.
  void join(int worker);
  /// It is lost, with all that runs there: nobody waits for it.
  void leave(int worker);
  /// Whether its next step, behind those that it runs, would be at most `bound` steps ahead of what
  /// each worker has ended, itself among them: another one may come while it runs them. Workers
  /// that run other functions alone are not waited for.
  bool may_begin(int worker) const;
  /// is_step: else it is a function that changes nothing, such as an evaluation's. Joins.
  void begin(int worker, bool is_step);
  /// has_run: else it goes back, and is somebody's next one.
  void end(int worker, bool is_step, bool has_run);
  /// Nothing waits and nothing runs, so everybody sees what all have done: all clocks are equal.
  void align();

 private:
  struct Clock {
    int64_t ended = 0;
    int64_t steps = 0;   // that run
    int64_t others = 0;  // the same, of functions that are none
    bool is_counted() const { return steps > 0 || others == 0; }
  };
  /// Of those that are waited for, without this one.
  std::optional<int64_t> slowest_but(int worker) const;
  /// One that was not waited for is now: not from behind all others.
  void catch_up(int worker, Clock& clock);

  const std::optional<int> bound_;
  std::map<int, Clock> clocks_;  // of those that take part
};

}  // namespace cohort::internal::coordinator
