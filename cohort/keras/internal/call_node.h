// SPDX-License-Identifier: Apache-2.0
//
// A call of a layer in the drawing of a functional model; internal.
#pragma once

#include <cstdint>

#include "cohort/keras/layer.h"

namespace cohort::keras::internal {

/// What a call in a drawing is told, all of it.
struct DrawnArgs : SymbolicArgs {
  KerasTensor attention_mask = {};
  bool use_causal_mask = false;
};

/// Threads: immutable.
struct CallNode {
  Layer layer;
  KerasTensor inputs;  ///< Nothing: an Input.
  DrawnArgs args;
  ElementSpec outputs;
  uint64_t number = 0;  ///< In the order in which calls were drawn in the process.

  /// What it needs: inputs, then masks and initial states.
  std::vector<KerasTensor> needs() const;
};

/// Of Layer's call in a drawing.
KerasTensor draw_call(const Layer& layer, const KerasTensor& inputs, DrawnArgs args);

}  // namespace cohort::keras::internal
