// SPDX-License-Identifier: Apache-2.0
//
// Which regions of a step's gradients may travel while backward passes still run, and in what
// order: the last one of the arena first, for backward passes come to it first, and none before
// the one ahead of it, so that all workers begin alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/variables/internal/post.h"
#include "cohort/variables/internal/slice_image.h"

namespace cohort::internal::variables {

/// Turn t is that of the t-th region from the end. Threads: thread-safe, for all replicas.
class Departures {
 public:
  /// `by_rows`: variables that nobody waits for; read in expect() of the last replica and in
  /// on_final(), written while no step is expected.
  Departures(const UpdateLayout& layout, const WorkerShares& shares,
             const std::vector<bool>& by_rows);

  std::size_t turn_of(std::size_t variable) const { return turns_of_[variable]; }

  /// A replica begins a pass. When all have, with the same stamp, what they announce counts: also
  /// what some have announced already.
  void expect(int replica, uint64_t stamp);
  /// A gradient of a replica is final.
  void announce(int replica, const Component& leaf, const Tensor& gradient);
  /// A turn that has come, which is the caller's until end_turn(): nobody else gets one, or
  /// moves().
  std::optional<std::size_t> begin_turn();
  /// Something has left, and nobody else is at it: the caller may help until end_turn().
  bool begin_moving();
  /// `left`: the turn's region has left.
  void end_turn(bool left);

  /// How many turns are over; unset where no step is expected.
  std::optional<std::size_t> left() const;
  /// The step is over, or another begins without having been expected.
  void end();
  /// What was announced: only gradients. Threads: who has a turn, or behind a meeting of all.
  Posts posts() const { return posts_; }

 private:
  void count_missing() COHORT_REQUIRES(mutex_);

  const std::vector<bool>& by_rows_;
  std::size_t regions_;
  std::vector<std::size_t> turns_of_;  // [variable]
  std::unordered_map<const Component*, std::size_t> variables_;

  mutable base::Mutex mutex_;
  std::vector<Post> posts_;                                     // [replica]; each writes its own
  std::vector<uint64_t> stamps_ COHORT_GUARDED_BY(mutex_);      // [replica]
  std::vector<std::size_t> missing_ COHORT_GUARDED_BY(mutex_);  // [turn]: gradients
  bool is_expected_ COHORT_GUARDED_BY(mutex_) = false;
  bool is_busy_ COHORT_GUARDED_BY(mutex_) = false;
  std::size_t left_ COHORT_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::internal::variables
