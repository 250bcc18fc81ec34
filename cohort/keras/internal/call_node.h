// SPDX-License-Identifier: Apache-2.0
//
// A call of a layer in the drawing of a functional model; internal.
#pragma once

#include <cstdint>

#include "cohort/keras/layer.h"

namespace cohort::keras::internal {

/// Threads: immutable.
struct CallNode {
  Layer layer;
  KerasTensor inputs;  ///< Nothing: an Input.
  SymbolicArgs args;
  ElementSpec outputs;
  uint64_t number = 0;  ///< In the order in which calls were drawn in the process.

  /// What it needs: inputs, then masks and initial states.
  std::vector<KerasTensor> needs() const;
};

}  // namespace cohort::keras::internal
