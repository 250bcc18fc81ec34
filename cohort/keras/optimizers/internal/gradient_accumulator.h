// SPDX-License-Identifier: Apache-2.0
//
// Gradients summed over calls of apply_gradients, by each replica on its own: no communication.
// Dense sums lie in gradient buffers of the arena, where the fused update reads them; rows of a
// table stay rows until somebody brings the whole.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/variables/gradient_lease.h"
#include "cohort/variables/gradients_and_variables.h"
#include "cohort/variables/row_sum.h"

namespace cohort::keras::internal {

/// Threads: add(), take() and forget_after_failure() on the replicas' threads, each for its own
/// replica; value() and assign() cross-replica.
class GradientAccumulator {
 public:
  GradientAccumulator(std::vector<Variable> variables, int replicas);

  /// Errors: InvalidArgument for another shape than the variable's.
  void add(std::size_t variable, const Gradient& gradient);
  /// The sums divided by `steps`, of the variables that got a gradient; then starts anew.
  Gradients take(int steps);
  /// A run that failed may have left replicas with different numbers of calls: after one, what
  /// this replica has summed is dropped, and true returned.
  bool forget_after_failure();

  /// Where the count of calls is not this process's alone: the number of this call. One replica.
  int64_t count_call() { return ++own_calls_; }
  void forget_calls() { own_calls_ = 0; }

  /// What all replicas have summed so far; zeros if nothing. With several workers all call.
  Tensor value_of_all(std::size_t variable) const;
  /// Makes `x` the sum, as if the first replica of all had brought all of it. Runs that failed
  /// before are forgotten: what a checkpoint has restored is not dropped for them.
  void assign(std::size_t variable, const Tensor& x);

 private:
  struct alignas(64) Sums {
    std::shared_ptr<cohort::internal::variables::GradientLease> lease;
    std::vector<Tensor> tensors;  // per variable; undefined: nothing yet, or rows
    std::map<std::size_t, cohort::internal::variables::RowSum>
        rows;                             // of variables that only got rows so far
    std::optional<uint64_t> failed_runs;  // of the group, at the last call
  };
  Tensor value_here(std::size_t variable) const;
  Sums& own();
  void store(Sums& sums, std::size_t variable, const Tensor& x);
  void add_rows(Sums& sums, std::size_t variable, const IndexedSlices& slices);

  const std::vector<Variable> variables_;
  std::vector<Sums> sums_;  // per replica
  int64_t own_calls_ = 0;
};

}  // namespace cohort::keras::internal
