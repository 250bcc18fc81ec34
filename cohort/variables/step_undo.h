// SPDX-License-Identifier: Apache-2.0
//
// What a step writes before it is known to succeed, and gets back if it fails: the moving
// statistics of BatchNormalization, which the forward pass moves, sums of losses and metrics, and
// how many random numbers were drawn. Weights and slots need none of this, nothing writes them
// before every replica has come to the update without an error.
#pragma once

#include <c10/util/SmallVector.h>

#include <memory>
#include <utility>
#include <vector>

#include "cohort/runtime/step_draws.h"
#include "cohort/runtime/tensor.h"
#include "cohort/runtime/thread_context.h"

namespace cohort::internal::variables {

/// The old values of one replica. Threads: bound to its thread in a run.
class StepUndo {
 public:
  StepUndo();
  StepUndo(const StepUndo&) = delete;
  StepUndo& operator=(const StepUndo&) = delete;

  /// Remembers what `t` holds, at the first call for it since the last commit. Cost: a copy; of one
  /// float64 number no memory.
  void keep(const Tensor& t);
  /// Remembers that a replica has made draw number `draw`; see runtime/step_draws.h.
  void drew(const std::shared_ptr<runtime::DrawCounts>& counts, int replica, uint64_t draw);
  /// The step has written its weights: what it moved stays.
  void commit();
  /// Puts everything back that was kept since the last commit.
  void roll_back();

  /// The calling thread's; nullptr outside of runs.
  static StepUndo* current() { return runtime::t_slots.top->context.undo; }

 private:
  std::vector<std::pair<Tensor, Tensor>> kept_;  // where, and what it held
  c10::SmallVector<std::pair<Tensor, double>, 4> numbers_;
  // The last draws without another thread's between them.
  struct Drawn {
    std::shared_ptr<runtime::DrawCounts> counts;
    int replica;
    uint64_t first, draws;
  };
  std::vector<Drawn> drawn_;
};

}  // namespace cohort::internal::variables
