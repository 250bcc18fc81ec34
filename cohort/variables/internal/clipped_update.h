// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of a fused update, as one replica does its part of it: sum what the replicas have
// posted, clip, decay the weights, apply the rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cohort/variables/internal/post.h"
#include "cohort/variables/internal/update_layout.h"

namespace cohort::internal::runtime {
class ReplicaGroup;
}  // namespace cohort::internal::runtime
namespace cohort::internal::variables {

/// What clipvalue and weight decay make of a run; scales by norms come on top.
update_rules::UpdateOptions update_options(const UpdaterOptions& options, const UpdateRun& run,
                                           double weight_decay);

/// Threads: run() on all replicas' threads at once.
class ClippedUpdate {
 public:
  ClippedUpdate(const UpdateLayout& layout, UpdaterOptions options);

  const UpdaterOptions& options() const { return options_; }
  /// True if run() of several replicas meets once before it writes: each sums up the squares of
  /// its share of the gradients.
  bool shares_norm() const { return options_.global_clipnorm.has_value(); }

  /// Updates the replica's slice of every run with the sum of the posts, in their order. `group`:
  /// all its replicas run this with the same posts; nullptr: this one alone.
  void run(Posts posts, int replica, runtime::ReplicaGroup* group, const update_rules::Rule& rule,
           double weight_decay);

 private:
  using Sources = UpdateRun::Sources;
  /// The gradients of a variable. `made` keeps what exists nowhere else: where others have brought
  /// dense ones, rows become one, too.
  Sources sources(Posts posts, std::size_t variable, std::vector<Tensor>& made) const;
  Sources sources(Posts posts, const UpdateRun& full) const;
  /// Of a variable that is updated by rows, those that have elements in `range` of its run.
  RowSum rows(Posts posts, std::size_t variable, Range range) const;
  void update_variable(Posts posts, const UpdateRun& run, std::size_t variable, int replica,
                       const update_rules::Rule& rule, update_rules::UpdateOptions how) const;
  /// clipnorm of one variable, as a factor.
  double norm_scale(Posts posts, const UpdateRun& run, std::size_t variable, int replica) const;
  double squares_of(Posts posts, const UpdateRun& run, std::size_t variable, int replica) const;
  /// global_clipnorm, as a factor.
  double global_scale(Posts posts, bool full, int replica, runtime::ReplicaGroup* group);
  double squares_of_runs(Posts posts, int replica) const;
  double squares_of_variables(Posts posts, int replica) const;
  double shared_squares(Posts posts, int replica, runtime::ReplicaGroup& group);

  const UpdateLayout& layout_;
  const UpdaterOptions options_;
  // Of every block of every run. The first meeting of the next update comes after the last read.
  std::vector<double> block_squares_;
};

}  // namespace cohort::internal::variables
