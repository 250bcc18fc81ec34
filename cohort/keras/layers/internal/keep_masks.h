// SPDX-License-Identifier: Apache-2.0
//
// The masks that layers with dropout inside draw: of replicas and steps, as Dropout does.
//
//   Tensor keep = masks_.draw(shape_of(x), 0.5, x);      // 0, or 2
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// Where a layer's draws are: its seed and number, and how often each replica has drawn.
/// Order: made where the program is sequential. Threads: thread-safe.
class KeepMasks {
 public:
  explicit KeepMasks(std::optional<uint64_t> seed);

  /// 0 with probability `rate`, else 1 / (1 - rate), with dtype and device of `like`.
  Tensor draw(const Shape& shape, double rate, const Tensor& like);
  /// The position, for a layer's tracked_parts(). The masks have to outlive it.
  TrackedValue tracked();

 private:
  uint64_t next_step(int replica);
  /// seed, operation, draws: where they go on, on every replica.
  Tensor position() const;
  void set_position(const Tensor& position);

  std::optional<uint64_t> seed_;  // unset: the process's
  uint64_t operation_;
  mutable cohort::internal::Mutex mutex_;
  // Of replicas that have not drawn yet.
  uint64_t first_step_ COHORT_GUARDED_BY(mutex_) = 0;
  // Draws so far, [replica + 1].
  std::vector<uint64_t> steps_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort::keras::internal
