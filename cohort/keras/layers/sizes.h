// SPDX-License-Identifier: Apache-2.0
//
// A number for each axis of an image, a series or a volume.
//
// keras::Conv2D(32, {5, 3}, {.strides = 2});     // 5 rows, 3 columns; 2 of both
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ostream>

#include "cohort/keras/config.h"

namespace cohort::keras {

namespace internal {
/// N numbers, or one for all. Errors: InvalidArgument for anything else.
void read_sizes(const Config& config, int64_t* sizes, std::size_t count);
}  // namespace internal

/// {5, 3}; one number stands for all. Python's (5, 3) is C++'s comma operator, which is 3:
/// compilers say so by -Wunused-value, which linking to Cohort turns on.
template <int N>
struct Sizes {
  static constexpr int kAxes = N;
  std::array<int64_t, N> each;

  Sizes(int64_t all) { each.fill(all); }  // NOLINT: implicit by design
  template <std::integral... I>
  requires(N > 1 && sizeof...(I) == N) Sizes(I... sizes)  // NOLINT: so is this
      : each{static_cast<int64_t>(sizes)...} {}
  int64_t operator[](std::size_t axis) const { return each[axis]; }
  bool operator==(const Sizes&) const = default;
  /// "3", or "(5, 3)".
  friend std::ostream& operator<<(std::ostream& out, const Sizes& sizes) {
    if (sizes == Sizes(sizes[0])) return out << sizes[0];
    for (std::size_t i = 0; i < N; ++i) out << (i == 0 ? "(" : ", ") << sizes[i];
    return out << ')';
  }

  /// [5, 3]; one number is read as well.
  Config serialize() const { return Config::List(each.begin(), each.end()); }
  static Sizes deserialize(const Config& config) {
    Sizes sizes = 1;
    internal::read_sizes(config, sizes.each.data(), N);
    return sizes;
  }
};

using Size1D = Sizes<1>;
using Size2D = Sizes<2>;  ///< Rows and columns.
using Size3D = Sizes<3>;  ///< Depth, rows and columns.

}  // namespace cohort::keras
