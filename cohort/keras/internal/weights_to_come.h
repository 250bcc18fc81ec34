// SPDX-License-Identifier: Apache-2.0
//
// Models that are made to be filled from a file. Internal.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cohort/runtime/tensor.h"
#include "cohort/variables/variable.h"

namespace cohort::keras::internal {

/// While it lives, weights that layers make on this thread are zeros where Cohort's initializers
/// would draw them: drawing takes longer than reading a file. Threads: bound to one.
class [[nodiscard]] WeightsToCome {
 public:
  /// False: they are drawn as ever. `bytes`: what the file has of them; `besides`: what all that
  /// are in no file may take, as states and weights that a layer does not store.
  explicit WeightsToCome(bool come, uint64_t bytes = kAny, uint64_t besides = most_besides());
  ~WeightsToCome();
  WeightsToCome(const WeightsToCome&) = delete;
  WeightsToCome& operator=(const WeightsToCome&) = delete;

  /// Null: weights are to have their values at once.
  static WeightsToCome* here();
  /// Before a weight is made. Errors: InvalidArgument where all are far more than the file has.
  void expect(const std::string& name, const Shape& shape, DType dtype);
  /// `draw` gives the variable the value that it would have had.
  void add(const Variable& variable, std::function<void()> draw);
  void draw_all_but(std::span<const Variable> filled) const;

  /// Half of the memory that is free, and no less than 256 MiB; or what set_most_besides() says.
  static uint64_t most_besides();
  /// Of this process; nullopt: as it is free.
  static void set_most_besides(std::optional<uint64_t> bytes);

 private:
  static constexpr uint64_t kAny = UINT64_MAX;
  WeightsToCome* const outer_;
  const uint64_t most_;
  uint64_t expected_ = 0;
  std::vector<std::pair<Variable, std::function<void()>>> weights_;
};

}  // namespace cohort::keras::internal
