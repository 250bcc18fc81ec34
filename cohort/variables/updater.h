// SPDX-License-Identifier: Apache-2.0
//
// Updater: what an optimizer gives gradients and a rule; the store of the variables makes it.
//
//   std::shared_ptr<Updater> updater = store->make_updater(variables, {.slot_initial = {0, 0}});
//   updater->apply(tape.gradient(loss, variables), update_rules::adam_step(config, step));
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/update_rules/rules.h"
#include "cohort/variables/final_gradients.h"
#include "cohort/variables/gradients_and_variables.h"

namespace cohort::internal::variables {

struct RuleOfStep;

struct UpdaterOptions {
  std::string name = {};                  ///< The optimizer's: tells its slots from another's.
  std::vector<double> slot_initial = {};  ///< A number per slot of the rule; its length counts.
  std::vector<bool> decays = {};          ///< Which variables weight decay touches. Empty: all.
  std::optional<double> clipvalue = {};  ///< Keras's ways to clip the summed gradient; at most one.
  std::optional<double> clipnorm = {};
  std::optional<double> global_clipnorm = {};
  /// What an update with IndexedSlices does to rows that they do not name. false: what a gradient
  /// of zero does (slots decay, momentum moves, weights decay). true: nothing; see
  /// keras/optimizers/optimizers.h.
  bool lazy_rows = false;
  /// Of gradients that travel at once between workers.
  std::size_t bytes_per_bucket = std::size_t{4} << 20;
  /// Between workers gradients travel as bfloat16; rows of tables as they are. Needs float32.
  bool bfloat16_gradients = false;
};

/// Applies an optimizer's rule to a list of variables, and keeps the slots.
/// Threads: make it in cross-replica context; apply() on every replica's thread at once.
class Updater {
 public:
  Updater() = default;
  virtual ~Updater() = default;
  Updater(const Updater&) = delete;
  Updater& operator=(const Updater&) = delete;

  /// Applies the rule to every variable that has a gradient on some replica; a replica without
  /// one counts as zero. Gradients are added over replicas in their order, then clipped, then the
  /// weights decay, then the rule. weight_decay: decay times learning rate, for the variables that
  /// decay. IndexedSlices may name rows repeatedly, and replicas may name different ones.
  /// What `gradients` alone holds must not be written before the next merge point.
  /// Order: a merge point with several replicas. Nothing is written before all have arrived. With
  ///         several workers an operation of their communicator: all of them call it.
  /// Errors: InvalidArgument for a variable it was not built with or a gradient of another shape;
  ///         FailedPrecondition cross-replica with several replicas, or if replicas or workers
  ///         differ (variables, rule, learning rate). With several workers every worker throws
  ///         what one of them does, with the worker and the operation, and none has written.
  virtual void apply(const Gradients& gradients, const update_rules::Rule& rule,
                     double weight_decay = 0) = 0;
  /// The calling replica is about to compute gradients in one backward pass, and to give apply()
  /// all of them as they come out of it, untouched, with the rule that `rule` says, which may be
  /// asked here. Returns who wants to be told meanwhile; null: nobody.
  /// Order: all replicas of all workers call it before the pass of a step, or none.
  virtual FinalGradients* expect_gradients(base::FunctionRef<RuleOfStep()> /*rule*/) {
    return nullptr;
  }
  /// Applies the rule to the calling replica's copies with its own gradients alone: copies and
  /// slots of the replicas part, and later apply() uses each replica's own slots.
  /// Errors: as apply(); Unimplemented where replicas share the parameters.
  virtual void apply_own(const Gradients& gradients, const update_rules::Rule& rule,
                         double weight_decay = 0) = 0;

  /// From here on `iterations`, an int64 of one number, counts each update that others make of what
  /// several pushes bring (ParameterStore::aggregates_pushes). Where they do not it changes
  /// nothing: the optimizer counts.
  virtual void count_in(const Variable& /*iterations*/) {}

  virtual const std::vector<Variable>& variables() const = 0;
  virtual int slot_count() const = 0;
  /// A slot's value in the variable's shape; a copy, of replica 0's. Cross-replica. With several
  /// workers all of them call it, in the same order: it is gathered.
  virtual Tensor slot(std::size_t variable, int slot) const = 0;
  /// Of a slot that is spread over several workers, the boxes that each has: one without read() is
  /// another worker's. What read() gives is the slot's memory. Empty: it is not spread.
  /// Cross-replica; no other worker takes part.
  virtual std::vector<TrackedPiece> slot_pieces(std::size_t /*variable*/, int /*slot*/) const {
    return {};
  }
  /// Writes every copy of a slot. Cross-replica. With several workers each writes its part, so all
  /// of them call it with the same value.
  virtual void set_slot(std::size_t variable, int slot, const Tensor& value) = 0;
};

}  // namespace cohort::internal::variables
