// SPDX-License-Identifier: Apache-2.0
//
// The axes of strategy.reduce(op, value, axes).
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace cohort {

/// Axes to reduce away inside each replica first; negative ones count from the end.
class Axes {
 public:
  Axes() = default;
  Axes(int64_t axis) : axes_({axis}) {}                       // NOLINT: implicit
  Axes(std::initializer_list<int64_t> axes) : axes_(axes) {}  // NOLINT
  template <std::integral I>
  Axes(const std::vector<I>& axes) : axes_(axes.begin(), axes.end()) {}  // NOLINT
  bool empty() const { return axes_.empty(); }
  const std::vector<int64_t>& values() const { return axes_; }

 private:
  std::vector<int64_t> axes_;
};

}  // namespace cohort
