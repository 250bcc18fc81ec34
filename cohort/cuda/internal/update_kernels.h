// SPDX-License-Identifier: Apache-2.0
//
// The door between the classes and the kernels of updates: plain data, and
// launches on a stream. Addresses are the device's.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "cohort/update_rules/internal/kernels.h"

namespace cohort::internal::cuda {

/// Gradients that one launch adds up.
inline constexpr std::size_t kMostSources = 64;

/// One fused update of elements [begin, end); see
/// update_rules::internal::UpdateCall.
struct UpdateLaunch {
  bool is_double = false;
  update_rules::internal::RuleKind kind = {};
  double coefficients[update_rules::internal::kMaxCoefficients] = {};
  void* to[4] = {};          ///< Parameters, then slots; null: the rule has it not.
  const void* from[4] = {};  ///< In place, the same as `to`.
  const void* sources[kMostSources] = {};
  std::size_t source_count = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  double gradient_scale = 1;
  double clip_value = 0;
  double weight_decay = 0;
  /// What write_rule() wrote, on the device, where kernels read the rule's
  /// numbers, and the three above, when they run; null: those of the launch.
  const std::byte* rule_at = nullptr;
};
cudaError_t launch_update(const UpdateLaunch& update, cudaStream_t stream);

/// Of what write_rule() writes, at most.
inline constexpr std::size_t kRuleBytes = 128;
/// The numbers of a launch as kernels of its kind and type read them.
void write_rule(const UpdateLaunch& update, std::byte* out);

/// Numbers of rows that travel in the call itself.
inline constexpr std::size_t kFewRows = 64;

/// Row numbers[i] of `width` elements, with the gradients from i * width on of
/// `table`'s one source; its begin and end do not count.
struct RowsLaunch {
  UpdateLaunch table;
  const std::int64_t* numbers = nullptr;  ///< On the device; null: `few` has them.
  std::int64_t few[kFewRows] = {};
  std::size_t count = 0;
  std::size_t width = 0;
};
cudaError_t launch_update_rows(const RowsLaunch& rows, cudaStream_t stream);

/// out[i] = sum of squares of the summed sources over elements [begin + 4096 i,
/// + 4096), up to end. Order: that of update_rules::sum_of_squares().
struct SquaresLaunch {
  bool is_double = false;
  const void* sources[kMostSources] = {};
  std::size_t source_count = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  double* out = nullptr;
};
cudaError_t launch_squares(const SquaresLaunch& squares, cudaStream_t stream);

}  // namespace cohort::internal::cuda
