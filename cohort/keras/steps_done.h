// SPDX-License-Identifier: Apache-2.0
//
// What a worker's execution of steps brings the chief; internal.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// A nest, as it travels. Nothing of it is in another execution's: all of them added up count each
/// step once, on whichever worker it ran, and however often it had to be run.
struct StepsDone {
  int64_t steps = 0;
  std::vector<Tensor> states = {};                ///< Of loss and metrics, from nothing on.
  std::vector<std::vector<int64_t>> shapes = {};  ///< CompiledModel::resolved_for().
  /// What the last step logged, where that is not just the loss and the metrics: names, and values
  /// of those that are none of them.
  std::vector<std::string> logged = {};
  std::map<std::string, Tensor> values = {};
  int stops = 0;  ///< A step has called stop_training().
};

}  // namespace cohort::keras::internal
