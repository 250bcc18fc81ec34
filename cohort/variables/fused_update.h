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
#include <optional>
#include <span>
#include <vector>

#include "cohort/update_rules/rules.h"
#include "cohort/variables/gradients_and_variables.h"

namespace cohort::internal {

struct FusedUpdateOptions {
  std::vector<double> slot_initial = {};  ///< A number per slot of the rule; its length counts.
  std::vector<bool> decays = {};          ///< Which variables weight decay touches. Empty: all.
  std::optional<double> clipvalue = {};  ///< Keras's ways to clip the summed gradient; at most one.
  std::optional<double> clipnorm = {};
  std::optional<double> global_clipnorm = {};
  /// Of gradients that travel at once between workers.
  std::size_t bytes_per_bucket = std::size_t{4} << 20;
};

/// Threads: construct in cross-replica context; apply() on every replica's thread at once.
class FusedUpdate {
 public:
  /// Errors: InvalidArgument for variables of different strategies, frozen ones, a variable listed
  ///         twice, or a dtype other than float32 and float64.
  explicit FusedUpdate(std::vector<Variable> variables, FusedUpdateOptions options = {});
  ~FusedUpdate();
  FusedUpdate(const FusedUpdate&) = delete;
  FusedUpdate& operator=(const FusedUpdate&) = delete;

  /// Applies the rule to every variable that has a gradient on some replica; a replica without
  /// one counts as zero. weight_decay: decay times learning rate, for the variables that decay.
  /// What `gradients` alone holds must not be written before the next merge point.
  /// Order: a merge point with several replicas. Nothing is written before all have arrived. With
  ///         several workers an operation of their communicator: all of them call it.
  /// Errors: InvalidArgument for a variable it was not built with or a gradient of another shape;
  ///         FailedPrecondition cross-replica with several replicas, or if replicas or workers
  ///         differ (variables, rule, learning rate). With several workers every worker throws
  ///         what one of them does, with the worker and the operation, and none has written;
  ///         Unimplemented with a CrossDeviceOps of the user.
  void apply(const Gradients& gradients, const update_rules::Rule& rule, double weight_decay = 0);

  /// Applies the rule to the calling replica's copies with its own gradients alone: copies and
  /// slots of the replicas part, and later apply() uses each replica's own slots.
  /// Order: a merge point at the first call, where slots become one set per replica; then none.
  /// Errors: as apply(); Unimplemented where replicas share the parameters, and with several
  ///         workers.
  void apply_own(const Gradients& gradients, const update_rules::Rule& rule,
                 double weight_decay = 0);

  const std::vector<Variable>& variables() const;
  int slot_count() const;
  /// A slot's value in the variable's shape; a copy, of replica 0's. Cross-replica. With several
  /// workers all of them call it, in the same order: it is gathered.
  Tensor slot(std::size_t variable, int slot) const;
  /// Writes every copy of a slot. Cross-replica. With several workers each writes its part, so all
  /// of them call it with the same value.
  void set_slot(std::size_t variable, int slot, const Tensor& value);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace cohort::internal
