// SPDX-License-Identifier: Apache-2.0
//
// Models that are made to be filled from a file. Internal.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "cohort/variables/variable.h"

namespace cohort::keras::internal {

/// While it lives, weights that layers make on this thread are zeros where Cohort's initializers
/// would draw them: drawing takes longer than reading a file. Threads: bound to one.
class [[nodiscard]] WeightsToCome {
 public:
  /// False: they are drawn as ever.
  explicit WeightsToCome(bool come);
  ~WeightsToCome();
  WeightsToCome(const WeightsToCome&) = delete;
  WeightsToCome& operator=(const WeightsToCome&) = delete;

  /// Null: weights are to have their values at once.
  static WeightsToCome* here();
  /// `draw` gives the variable the value that it would have had.
  void add(const Variable& variable, std::function<void()> draw);
  void draw_all_but(std::span<const Variable> filled) const;

 private:
  WeightsToCome* const outer_;
  std::vector<std::pair<Variable, std::function<void()>>> weights_;
};

}  // namespace cohort::keras::internal
