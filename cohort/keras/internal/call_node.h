// SPDX-License-Identifier: Apache-2.0
//
// A symbolic call of a layer, a node of a functional model; internal.
#pragma once

#include <cstdint>

#include "cohort/keras/layer.h"

namespace cohort::keras::internal {

/// All arguments of a symbolic call.
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
  uint64_t number = 0;  ///< In the order of symbolic calls in the process.

  /// What it needs: inputs, then masks and initial states.
  std::vector<KerasTensor> needs() const;
};

/// A layer's symbolic call.
KerasTensor draw_call(const Layer& layer, const KerasTensor& inputs, DrawnArgs args);

}  // namespace cohort::keras::internal
