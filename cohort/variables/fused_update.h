// SPDX-License-Identifier: Apache-2.0
//
// An optimizer's pass over the arenas: sums all replicas' gradients in replica order, clips them,
// applies an update rule and writes the parameters. There is no separate all-reduce.
//
//   FusedUpdate update(variables, {.slot_initial = {0, 0}});                  // Adam: m and v
//   update.apply(tape.gradient(loss, variables), update_rules::adam_step(config, iteration));
//
// Between replicas it is one meeting before anything is written, and under the sharded schedule
// (see UpdateSchedule) a second one when each replica has copied its slice to the others. Replicas
// that share one copy of the parameters update a slice each, and nothing is to be copied. Under the
// pull schedule there is a second one only where somebody else holds a gradient that was applied,
// and so may write it, while other replicas still read.
//
// Where the variables' strategy has several workers, apply() exchanges gradients with them and
// slots are spread over them: see internal/exchanged_update.h.
#pragma once

#include <memory>
#include <vector>

#include "cohort/variables/updater.h"

namespace cohort::internal::variables {

/// Threads: as Updater.
class FusedUpdate final : public Updater {
 public:
  /// Errors: InvalidArgument for variables of different strategies, frozen ones, a variable listed
  ///         twice, or a dtype other than float32, float64, float16 and bfloat16 (see
  ///         rounded_update.h); Unimplemented for these two on other devices than CPUs.
  explicit FusedUpdate(std::vector<Variable> variables, UpdaterOptions options = {});
  ~FusedUpdate() override;

  /// Order: as Updater; one meeting before anything is written.
  /// Errors: as Updater.
  /// Cost: a pass over all variables that have a gradient, but of those with IndexedSlices the rows
  ///       that they name, where the others stay as they are: with lazy_rows, or where the rule
  ///       ignores_zero_gradients and neither weight decay nor a norm needs the whole table.
  void apply(const Gradients& gradients, const update_rules::Rule& rule,
             double weight_decay = 0) override;
  /// Of several workers: buckets of gradients leave as soon as they are final, and where workers
  /// share no memory new parameters follow them. Not in the first step, which shows what all have
  /// to bring, nor in one after a step whose backward pass had collectives, which could come in
  /// another order on another worker.
  FinalGradients* expect_gradients(base::FunctionRef<RuleOfStep()> rule) override;
  /// Order: a merge point at the first call, where slots become one set per replica; then none.
  ///         With several workers all of them make the first call together, where slots are
  ///         gathered.
  /// Errors: as Updater.
  void apply_own(const Gradients& gradients, const update_rules::Rule& rule,
                 double weight_decay = 0) override;

  const std::vector<Variable>& variables() const override;
  int slot_count() const override;
  Tensor slot(std::size_t variable, int slot) const override;
  std::vector<TrackedPiece> slot_pieces(std::size_t variable, int slot) const override;
  void set_slot(std::size_t variable, int slot, const Tensor& value) override;
  /// The slots of these rows, each named once, are what they were at first. Does nothing for a
  /// variable that is not among its own. Order: all replicas wait. One worker.
  void renew_rows(const Variable& variable, const Tensor& rows);
  /// How often apply() has ended on the replica; 0 if the variable is not among its own. Order: of
  /// another replica's thread, all wait.
  int64_t updates_of(const Variable& variable, int replica) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace cohort::internal::variables
