// SPDX-License-Identifier: Apache-2.0
//
// Updates in the memory of CUDA devices: one launch each, on the calling
// thread's stream.
#pragma once

#include "cohort/variables/update_kernels.h"

namespace cohort::internal::cuda {

/// The formulas and their order are those of CPUs
/// (update_rules/internal/rule_formulas.inc), so are the bits of a CPU without
/// fused multiply-adds, but for Ftrl's general power. Sources may lie on other
/// devices that the current one reads. Sums of squares have the same order of
/// additions. Errors: Unimplemented for more than 64 sources; what LibTorch
/// throws where CUDA fails. Blocks: update and update_rows never, unless the
/// rows' numbers wait for pinned memory;
///         sum_of_squares and block_square_sums until the host knows the sums.
class CudaUpdateKernels final : public variables::UpdateKernels {
 public:
  /// As update_rules::fused_update. from_parameters and from_slots are served,
  /// too.
  void update(const variables::RangeUpdate& range, const update_rules::Rule& rule,
              const update_rules::UpdateOptions& how) override;
  std::size_t rule_bytes() const override;
  void write_rule(DType dtype, const update_rules::Rule& rule,
                  const update_rules::UpdateOptions& how, std::byte* out) const override;
  /// The numbers of few rows travel in the call; others through pinned memory,
  /// in the stream's order: the span is free on return.
  void update_rows(const variables::RowsUpdate& table, const update_rules::Rule& rule,
                   const update_rules::UpdateOptions& how) override;
  double sum_of_squares(DType dtype, std::span<const std::byte* const> sources, std::size_t begin,
                        std::size_t end) override;
  void block_square_sums(DType dtype, std::span<const std::byte* const> sources, std::size_t size,
                         std::size_t first, std::span<double> out) override;
};

}  // namespace cohort::internal::cuda
