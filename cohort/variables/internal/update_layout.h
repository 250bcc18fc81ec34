// SPDX-License-Identifier: Apache-2.0
//
// Where an optimizer's variables lie: neighbours in an arena form runs that one pass walks over,
// and every run has slot memory of the same layout.
#pragma once

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/cross_device_ops/cross_device_ops.h"
#include "cohort/update_rules/update.h"
#include "cohort/variables/fused_update.h"
#include "cohort/variables/local_variables.h"
#include "cohort/variables/row_sum.h"
#include "cohort/variables/update_kernels.h"

namespace cohort::internal::variables {

/// Elements [begin, end) of a run.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool empty() const { return begin >= end; }
  std::size_t size() const { return empty() ? 0 : end - begin; }
  Range intersect(const Range& other) const {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
};

/// Variables that touch each other in one arena.
struct UpdateRun {
  /// One pointer per contributing replica.
  using Sources = c10::SmallVector<const std::byte*, 8>;

  std::shared_ptr<Arena> arena;
  int64_t offset = 0;    ///< In the arena, in elements.
  std::size_t size = 0;  ///< Elements, padding included.
  std::size_t element_size = 4;
  std::vector<std::size_t> members;  ///< Indices of the variables, in the arena's order.
  std::size_t start = 0;             ///< Elements of all runs before this one.
  bool decays = true;
  std::vector<std::vector<std::unique_ptr<runtime::Region>>> slots;  ///< [copy][slot]

  std::byte* parameters(int replica) const { return arena->parameter_data(replica, offset); }
  /// Of a replica's parameters, and of its slots where it has its own.
  const Device& device(int replica) const { return arena->parameter_device(replica); }
  /// Updates `range` of a replica's copy; sources point at element `sources_begin` of the run.
  void update(const update_rules::Rule& rule, const Sources& sources, int replica, Range range,
              std::size_t sources_begin, const update_rules::UpdateOptions& how) const;
  /// The same for the rows of a table that begins at element `table` of the run, as far as they
  /// lie in `range`; they and their slots are all that is touched.
  void update_rows(const update_rules::Rule& rule, const RowSum& sum, int replica, Range range,
                   std::size_t table, const update_rules::UpdateOptions& how) const;
  double sum_of_squares(const Sources& sources, int replica, std::size_t begin,
                        std::size_t end) const;
  /// Sums of squares of the blocks from `first` on; sources point at the run's first element.
  void block_square_sums(const Sources& sources, int replica, std::size_t first,
                         std::span<double> out) const;
  /// Memory for one slot of all members, all zero.
  std::unique_ptr<runtime::Region> make_slot(int replica) const;
  /// Of a slot's elements from `begin` on.
  Tensor slot_view(std::size_t copy, std::size_t slot, std::size_t begin, const Shape& shape) const;
};

/// Threads: immutable but for slots' contents and split_slots().
class UpdateLayout {
 public:
  UpdateLayout(std::vector<Variable> variables, const UpdaterOptions& options);

  const std::vector<Variable>& variables() const { return variables_; }
  const std::vector<UpdateRun>& runs() const { return runs_; }
  int replicas() const { return strategy_ ? strategy_->replicas() : 1; }
  UpdateSchedule schedule() const { return schedule_; }
  /// All replicas read one copy of the parameters.
  bool shares_parameters() const;
  /// Gives every replica slots of its own, which start equal, and the pull schedule from now on.
  /// While all replicas wait.
  void split_slots();
  /// Makes slots of its own for every replica, all zero, and the pull schedule from now on: where
  /// they were spread over the workers.
  void make_own_slots();
  CrossDeviceOps* cross_device_ops() const {
    return strategy_ ? strategy_->options().cross_device_ops.get() : nullptr;
  }
  /// Of the workers; null: this process is the only one. Slots are not the layout's then, but the
  /// exchange's.
  const std::shared_ptr<collectives::Communicator>& communicator() const { return communicator_; }
  /// Several workers on devices whose memory no message carries: gradients go over the host, as
  /// dense ones, and each replica has slots of its own.
  bool is_staged() const { return is_staged_; }
  int slot_count() const { return slot_count_; }

  /// Index of a variable; `hint` is looked at first.
  std::size_t index_of(const Variable& variable, std::size_t hint) const;
  const UpdateRun& run_of(std::size_t variable) const { return runs_[places_[variable].run]; }
  std::size_t offset_in_run(std::size_t variable) const { return places_[variable].begin; }
  std::size_t padded_size(std::size_t variable) const { return places_[variable].size; }
  /// A variable's place in its run.
  Range range_of(std::size_t variable) const {
    return {places_[variable].begin, places_[variable].begin + places_[variable].size};
  }
  /// Elements in a row of a variable.
  std::size_t row_width(std::size_t variable) const;
  std::size_t run_index_of(std::size_t variable) const { return places_[variable].run; }
  /// Elements of all runs, one behind the other.
  std::size_t total() const { return total_; }
  /// The part of a run that one of `parts` takes where all runs together are shared out.
  Range share(const UpdateRun& run, int part, int parts) const {
    return share(run, {0, total_}, part, parts);
  }
  /// The same where these elements of all runs are.
  static Range share(const UpdateRun& run, Range all, int part, int parts);
  /// What `replica` updates of a run: its share under the sharded schedule, else all.
  Range slice(const UpdateRun& run, int replica) const;
  /// A contiguous copy of a gradient, padded to the variable's place.
  Tensor pad(std::size_t variable, const Tensor& gradient) const;

  /// Errors: InvalidArgument for a variable or slot that is not there.
  void check_slot(std::size_t variable, int slot) const;
  Tensor read_slot(std::size_t variable, int slot) const;
  void write_slot(std::size_t variable, int slot, const Tensor& value);
  /// A number for each slot into these rows of it, of every copy.
  void fill_slot_rows(std::size_t variable, const Tensor& rows, const std::vector<double>& numbers);
  /// Index of a variable; nothing: it is another's.
  std::optional<std::size_t> find(const Variable& variable) const;

 private:
  struct Place {
    std::size_t run = 0;
    std::size_t begin = 0;
    std::size_t size = 0;
  };
  void check_variables() const;
  void check_devices() const;
  std::vector<std::size_t> arena_order() const;
  void make_runs(const std::vector<bool>& decays);
  UpdateSchedule choose_schedule() const;
  void make_slots(const std::vector<double>& initial);
  Tensor slot_view(std::size_t variable, std::size_t copy, int slot) const;

  std::vector<Variable> variables_;
  const LocalVariables* strategy_ = nullptr;
  std::shared_ptr<collectives::Communicator> communicator_;
  UpdateSchedule schedule_ = UpdateSchedule::kPull;
  bool is_staged_ = false;
  int slot_count_ = 0;
  std::vector<UpdateRun> runs_;
  std::vector<Place> places_;
  std::unordered_map<const VariableImpl*, std::size_t> index_;
  std::size_t total_ = 0;
};

using ReducedGradients = std::vector<Mirrored<Gradient>>;
/// Sends every gradient through a user's batch_reduce, one merge point; variables that have none
/// on any replica stay empty.
std::shared_ptr<const ReducedGradients> reduce_gradients(const UpdateLayout& layout,
                                                         const Gradients& gradients,
                                                         CrossDeviceOps& ops);

}  // namespace cohort::internal::variables
