// SPDX-License-Identifier: Apache-2.0
//
// For tests: the ways in which a layer's gradients can go wrong, each held against LibTorch's own
// gradients of plain operations, and one against finite differences.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cohort/keras/layer.h"

namespace cohort::testing {}
namespace cohort::keras::testing {

// Beside this header in a unit, testing::expect_error is what it is without.
using namespace cohort::testing;

struct GradientCase {
  std::string name;
  /// A layer of the current floatx(); called anew for every check.
  std::function<Layer()> make;
  Shape input;
  /// The same in plain operations; weights in the order of variables().
  std::function<Tensor(const Tensor& x, const std::vector<Tensor>& weights)> reference;
  bool training = true;
  bool smooth = true;  ///< Finite differences hold (no maxima near a tie).
};

/// Runs every check in float64 (generic operations) and in float32 (own kernels).
void check_gradients(const GradientCase& c);

}  // namespace cohort::keras::testing
