// SPDX-License-Identifier: Apache-2.0
//
// The fused update: one vectorised pass that sums the replicas' gradients in replica order, applies
// a rule and writes the parameters.
//
//   const float* gradients[] = {g0, g1};                     // replica order
//   fused_update<float>(rule, {.param = w, .slots = {m, v}}, gradients, begin, end);
//
// Every element goes through the same instructions wherever [begin, end) starts and stops: any
// split of an arena over threads gives the bits of the whole. Pointers are arena starts; begin and
// end are elements of the arena. T is float or double.
// Threads: functions of their arguments; calls on disjoint ranges may run at the same time.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <span>

#include "cohort/update_rules/rules.h"

namespace cohort::update_rules {

/// The arenas that a rule writes. Slots that the rule does not use stay null (see `uses_slot`).
template <class T>
struct Target {
  T* param = nullptr;
  std::array<T*, kMaxSlots> slots = {};
  /// Where the old values are, if not in the same place: these stay as they are. The bits are those
  /// of an update in place. All that the rule uses, or none.
  const T* from_param = nullptr;
  std::array<const T*, kMaxSlots> from_slots = {};
};

/// What happens to the summed gradient and the parameters around a rule. In this order: scale,
/// clip, weight decay, rule.
struct UpdateOptions {
  double gradient_scale = 1;  ///< E.g. norm_clip_scale(...), or 1 / accumulated steps.
  double clip_value = std::numeric_limits<double>::infinity();  ///< Into [-clip, clip].
  double weight_decay = 0;  ///< weight_decay * learning rate: p -= p * this.
};

/// Updates elements [begin, end) with the sum of `gradients` in their order.
/// Errors: InvalidArgument without gradients, or if an arena that the rule uses is null, also one
///         to read from where there is another one.
/// Cost: one pass over each arena; no allocation, no lock.
/// Blocks: never. TF: what ResourceApplyAdam and its like do after the all-reduce.
template <class T>
void fused_update(const Rule& rule, const Target<T>& target, std::span<const T* const> gradients,
                  std::size_t begin, std::size_t end, const UpdateOptions& options = {});

/// Updates row rows[i] of a table of `width` elements a row with gradients[i * width] and those
/// behind it, as fused_update would; other rows and their slots are neither read nor written. No
/// row may stand twice.
/// Errors: InvalidArgument if an arena that the rule uses is null.
/// Cost: the rows. TF: what ResourceSparseApplyAdagradV2 and its like do with unique indices.
template <class T>
void fused_update_rows(const Rule& rule, const Target<T>& table, const T* gradients,
                       std::span<const int64_t> rows, std::size_t width,
                       const UpdateOptions& options = {});

/// The same as fused_update on spans of one length with one gradient.
/// Errors: InvalidArgument if lengths differ or a slot is missing (give {} for an unused one).
template <class T>
void update(const Rule& rule, std::span<T> param, std::initializer_list<std::span<T>> slots,
            std::span<const T> gradient, const UpdateOptions& options = {});

/// Elements that share a partial sum in `block_square_sums`.
inline constexpr std::size_t kSquareSumBlock = 4096;
/// Blocks that cover `size` elements.
constexpr std::size_t square_sum_blocks(std::size_t size) {
  return (size + kSquareSumBlock - 1) / kSquareSumBlock;
}
/// out[i] = sum of squares of the summed gradients over block `first_block + i` of an arena of
/// `size` elements. Threads share the blocks, then each adds all of them up in block order: the
/// same bits for any number of threads.
/// Errors: InvalidArgument without sources or past the last block.
template <class T>
void block_square_sums(std::span<const T* const> sources, std::size_t size, std::size_t first_block,
                       std::span<double> out);

/// The sum of squares of the summed gradients over [begin, end), in double, in a fixed order.
template <class T>
double sum_of_squares(std::span<const T* const> sources, std::size_t begin, std::size_t end);

/// Keras's clip_by_global_norm as a factor: min(1, clip_norm / norm); NaN if `norm` is not finite.
double global_norm_clip_scale(double norm, double clip_norm);
/// Keras's clipnorm of one variable as a factor: clip_norm / max(norm, clip_norm).
double norm_clip_scale(double norm, double clip_norm);

}  // namespace cohort::update_rules
