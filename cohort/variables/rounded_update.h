// SPDX-License-Identifier: Apache-2.0
//
// Internal: updates of float16 and bfloat16 parameters. Parameters, slots and gradients are widened
// to float32, gradients summed and the rule applied there, and what comes of it is rounded once,
// to the nearest. The rule is the one of float32 (update_rules/update.h), to the bit. What is added
// ahead of it (gradients of several replicas of one of several workers, or of pushes that servers
// sum) is added in its own dtype, as in all reductions of tensors.
//
// Keras rounds behind every operation instead, its constants too: in bfloat16 beta_2 = 0.999 is 1,
// and its Adam stands still. torch.optim's fused optimizers compute as is done here.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "cohort/update_rules/update.h"

namespace cohort::internal::variables {

/// float16 or bfloat16.
template <class T>
inline constexpr bool is_rounded = std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>;

/// As in update_rules; their arguments, errors and blocks.
template <class T>
requires is_rounded<T>
void rounded_update(const update_rules::Rule& rule, const update_rules::Target<T>& target,
                    std::span<const T* const> gradients, std::size_t begin, std::size_t end,
                    const update_rules::UpdateOptions& how);
template <class T>
requires is_rounded<T>
double rounded_sum_of_squares(std::span<const T* const> sources, std::size_t begin,
                              std::size_t end);

/// update_rules::fused_update of any dtype that is trained.
template <class T>
void apply_elements(const update_rules::Rule& rule, const update_rules::Target<T>& target,
                    std::span<const T* const> gradients, std::size_t begin, std::size_t end,
                    const update_rules::UpdateOptions& how) {
  if constexpr (is_rounded<T>) {
    rounded_update<T>(rule, target, gradients, begin, end, how);
  } else {
    update_rules::fused_update<T>(rule, target, gradients, begin, end, how);
  }
}

/// update_rules::fused_update_rows.
template <class T>
void apply_rows(const update_rules::Rule& rule, const update_rules::Target<T>& table,
                const T* gradients, std::span<const int64_t> rows, std::size_t width,
                const update_rules::UpdateOptions& how) {
  if constexpr (is_rounded<T>) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(rows[i]) * width;
      update_rules::Target<T> row{.param = table.param + at, .slots = {}};
      for (std::size_t s = 0; s < row.slots.size(); ++s) {
        row.slots[s] = table.slots[s] == nullptr ? nullptr : table.slots[s] + at;
      }
      const T* const source[] = {gradients + i * width};
      rounded_update<T>(rule, row, source, 0, width, how);
    }
  } else {
    update_rules::fused_update_rows<T>(rule, table, gradients, rows, width, how);
  }
}

/// update_rules::sum_of_squares.
template <class T>
double squares_of_elements(std::span<const T* const> sources, std::size_t begin, std::size_t end) {
  if constexpr (is_rounded<T>) {
    return rounded_sum_of_squares<T>(sources, begin, end);
  } else {
    return update_rules::sum_of_squares<T>(sources, begin, end);
  }
}

/// update_rules::block_square_sums.
template <class T>
void block_squares_of_elements(std::span<const T* const> sources, std::size_t size,
                               std::size_t first, std::span<double> out) {
  if constexpr (is_rounded<T>) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t begin = (first + i) * update_rules::kSquareSumBlock;
      const std::size_t end = begin + update_rules::kSquareSumBlock;
      out[i] = rounded_sum_of_squares<T>(sources, begin, end < size ? end : size);
    }
  } else {
    update_rules::block_square_sums<T>(sources, size, first, out);
  }
}

/// Whether optimizers train variables of this dtype.
constexpr bool is_trained(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Float || dtype == c10::ScalarType::Double ||
         dtype == c10::ScalarType::Half || dtype == c10::ScalarType::BFloat16;
}

/// Calls work(T{}) with the dtype's type. Order: of one that is trained.
template <class F>
decltype(auto) with_trained_type(c10::ScalarType dtype, const F& work) {
  switch (dtype) {
    case c10::ScalarType::Double:
      return work(double{});
    case c10::ScalarType::Half:
      return work(c10::Half{});
    case c10::ScalarType::BFloat16:
      return work(c10::BFloat16{});
    default:
      return work(float{});
  }
}

}  // namespace cohort::internal::variables
