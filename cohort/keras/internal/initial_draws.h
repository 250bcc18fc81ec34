// SPDX-License-Identifier: Apache-2.0
//
// Draws of initializers that are put off: a weight that a file has is not drawn before. Internal.
#pragma once

#include <cstdint>
#include <optional>

namespace cohort::keras::internal {

/// What random initializers of Cohort's do on this thread while it lives. Threads: bound to one.
class [[nodiscard]] InitialDraws {
 public:
  /// They give zeros, and take the number of their draw, so that draws behind them are the same.
  InitialDraws() : InitialDraws(false) {}
  /// They draw what they had drawn in the place of `number`; none: they have a seed.
  explicit InitialDraws(std::optional<uint64_t> number) : InitialDraws(true) { number_ = number; }
  ~InitialDraws();
  InitialDraws(const InitialDraws&) = delete;
  InitialDraws& operator=(const InitialDraws&) = delete;

  std::optional<uint64_t> number() const { return number_; }
  /// Of the draw that comes now.
  static uint64_t next_number();
  /// False: zeros instead.
  static bool are_made();

 private:
  explicit InitialDraws(bool made);

  InitialDraws* const outer_;
  const bool made_;
  std::optional<uint64_t> number_;
};

}  // namespace cohort::keras::internal
