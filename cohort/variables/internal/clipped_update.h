// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of a fused update, as one replica does its part of it: sum what the replicas have
// posted, clip, decay the weights, apply the rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cohort/variables/internal/update_layout.h"

namespace cohort::internal {

class ReplicaGroup;

/// What a replica shows to the others at the merge point; a line of its own.
struct alignas(64) Post {
  explicit Post(std::size_t variables) : gradients(variables) {}
  uint64_t stamp = 0;                       // the replica's epoch behind the meeting
  bool full = false;                        // all gradients, at their places in the layout's runs
  bool held = false;                        // the program holds one, and may write it
  std::vector<const std::byte*> gradients;  // per variable; null: none
  std::vector<Tensor> copies = {};          // of gradients that lie nowhere in an arena
};
using Posts = std::span<const Post>;

/// What clipvalue and weight decay make of a run; scales by norms come on top.
update_rules::UpdateOptions update_options(const FusedUpdateOptions& options, const UpdateRun& run,
                                           double weight_decay);

/// Threads: run() on all replicas' threads at once.
class ClippedUpdate {
 public:
  ClippedUpdate(const UpdateLayout& layout, FusedUpdateOptions options);

  const FusedUpdateOptions& options() const { return options_; }
  /// True if run() of several replicas meets once before it writes: each sums up the squares of
  /// its share of the gradients.
  bool shares_norm() const { return options_.global_clipnorm.has_value(); }

  /// Updates the replica's slice of every run with the sum of the posts, in their order. `group`:
  /// all its replicas run this with the same posts; nullptr: this one alone.
  void run(Posts posts, int replica, ReplicaGroup* group, const update_rules::Rule& rule,
           double weight_decay);

 private:
  using Sources = UpdateRun::Sources;
  static Sources sources(Posts posts, std::size_t variable);
  /// clipnorm of one variable, as a factor.
  double norm_scale(const UpdateRun& run, const Sources& from, int replica,
                    std::size_t variable) const;
  /// global_clipnorm, as a factor.
  double global_scale(Posts posts, bool full, int replica, ReplicaGroup* group);
  double squares_of_runs(Posts posts, int replica) const;
  double squares_of_variables(Posts posts, int replica) const;
  double shared_squares(Posts posts, int replica, ReplicaGroup& group);

  const UpdateLayout& layout_;
  const FusedUpdateOptions options_;
  // Of every block of every run. The first meeting of the next update comes after the last read.
  std::vector<double> block_squares_;
};

}  // namespace cohort::internal
