// SPDX-License-Identifier: Apache-2.0
//
// Where variables are kept and who updates them: a strategy makes its variables through a
// ParameterStore, and optimizers ask that for an Updater (updater.h).
//
// The store of replicas in one process is LocalVariables: arenas, and the fused update over them
// (fused_update.h). Another one may keep parameters elsewhere and send gradients there: a rule with
// its numbers is plain data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/variables/variable_impl.h"

namespace cohort::internal::checkpoint {
class SavingGroup;
}  // namespace cohort::internal::checkpoint
namespace cohort::internal::variables {

class IdTableStore;
struct SlotForm;
class Updater;
struct UpdaterOptions;
class WholeUpdater;

/// Makes the variables of a strategy and what updates them. Threads: thread-safe.
class ParameterStore : public VariableCreator {
 public:
  /// Errors: InvalidArgument for variables of other stores, frozen ones, a variable listed twice,
  ///         or a dtype that it cannot update.
  virtual std::shared_ptr<Updater> make_updater(std::vector<Variable> variables,
                                                UpdaterOptions options) = 0;
  /// The same for steps that look at variables as a whole (whole_step.h), with slots of these forms
  /// for each of them. Null: the optimizer itself steps by the variables' values, which are here.
  /// Errors: as make_updater().
  virtual std::shared_ptr<WholeUpdater> make_whole_updater(
      std::vector<Variable> variables, const std::string& optimizer,
      std::vector<std::vector<SlotForm>> forms);
  /// The replicas that the variables are for. Default: one.
  virtual ReplicaLayout layout() const { return {}; }
  /// False where updates would have to go to other workers that cannot be reached.
  virtual bool reaches_workers() const { return true; }
  /// True where other processes keep the parameters, and may write them at any time: a variable's
  /// leaf has what this process has read last.
  virtual bool is_remote() const { return false; }
  /// Whether others make one update of several pushes for the variable, and count it
  /// (Updater::count_in): an optimizer does not count its updates itself then.
  virtual bool aggregates_pushes(const Variable& /*variable*/) const { return false; }
  /// Nobody pushes now, and pushes that wait shall not meet what is pushed from here on: they are
  /// an update, with the mean of so many. Where none wait it changes nothing. Blocks: until that is
  /// done. `iterations`: those of an optimizer that this process has built.
  virtual void complete_updates(const Variable& /*iterations*/) {}
  /// Before an operation that writes variables and reads behind it. `what`: as in texts, "use_ema".
  /// Errors: Unimplemented where what this thread writes is done later: it would read what was.
  virtual void check_reads_behind_writes(const std::string& /*operation*/,
                                         const std::string& /*what*/) const {}
  /// The tables whose ids and rows are not in this process; null: rows have numbers.
  virtual IdTableStore* id_tables() { return nullptr; }
  /// Rows of the variable will belong to one thing after another, such as the ids of a table that
  /// grows: see renew_rows(). `why`: who asks, for error texts.
  /// Errors: Unimplemented where rows cannot be renewed; FailedPrecondition if they are already
  ///         given away by somebody else.
  virtual void begin_renewing_rows(const Variable& variable, const char* why);
  virtual bool renews_rows(const Variable& /*variable*/) const { return false; }
  /// Writes rows of which each is another's from here on: every copy, and where updaters keep slots
  /// for them these are what they were at first. Order: begin_renewing_rows() comes before; all
  /// replicas wait, and indices are named once.
  virtual void renew_rows(const Variable& variable, const IndexedSlices& rows);
  /// How many updates of lists that have the variable a local replica has behind it: its own
  /// thread asks, or all replicas wait. The same on all that have met since.
  virtual int64_t updates_of(const Variable& variable, int replica) const;
  /// Who saves and restores its variables together; null: this process alone.
  virtual std::shared_ptr<checkpoint::SavingGroup> saving_group() const { return nullptr; }
};

/// The store that made the variable. Errors: InvalidArgument if none did.
ParameterStore& store_of(const char* operation, const Variable& variable);

/// What no store can make. `name`: the variable's, for error texts.
/// Errors: InvalidArgument for values that the enumerations have not, for a variable without
///         synchronization, and for one of another than a floating type that is aggregated by mean.
void check_variable_options(const VariableOptions& options, DType dtype, const std::string& name);

}  // namespace cohort::internal::variables
