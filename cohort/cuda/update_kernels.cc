// SPDX-License-Identifier: Apache-2.0
#include "cohort/cuda/update_kernels.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/cuda/internal/update_kernels.h"
#include "cohort/update_rules/internal/packed_rule.h"

namespace cohort::internal::cuda {
namespace {

template <class Launch>
void set_sources(std::span<const std::byte* const> sources, Launch& launch) {
  COHORT_CHECK_ARG(!sources.empty(), "[fused_update] expected one gradient or more, got none");
  if (sources.size() > kMostSources) {
    throw Unimplemented(str_cat("[fused_update] expected at most ", kMostSources,
                                " gradients on a GPU, got ", sources.size()));
  }
  std::copy(sources.begin(), sources.end(), launch.sources);
  launch.source_count = sources.size();
}

void set_rule(const update_rules::Rule& rule, const update_rules::UpdateOptions& how,
              UpdateLaunch& launch) {
  const update_rules::internal::PackedRule packed = update_rules::internal::packed_rule(rule);
  launch.kind = packed.kind;
  std::copy(std::begin(packed.coefficients), std::end(packed.coefficients), launch.coefficients);
  launch.gradient_scale = how.gradient_scale;
  launch.clip_value = how.clip_value;
  launch.weight_decay = how.weight_decay;
}

template <class Update>
UpdateLaunch launch_of(const Update& update, const update_rules::Rule& rule,
                       const update_rules::UpdateOptions& how) {
  COHORT_CHECK_ARG(update.dtype == kFloat32 || update.dtype == kFloat64,
                   "[fused_update] expected float32 or float64 on a GPU, got ",
                   dtype_name(update.dtype));
  UpdateLaunch launch;
  launch.is_double = update.dtype == kFloat64;
  set_rule(rule, how, launch);
  launch.to[0] = update.parameters;
  for (std::size_t s = 0; s < update_rules::kMaxSlots; ++s) launch.to[s + 1] = update.slots[s];
  std::copy(std::begin(launch.to), std::end(launch.to), launch.from);
  return launch;
}

// What a kernel that reads or writes an unset arena would do to the whole
// device.
void check_arrays(const UpdateLaunch& launch, const update_rules::Rule& rule) {
  COHORT_CHECK_ARG(launch.to[0] != nullptr && launch.from[0] != nullptr,
                   "[fused_update] expected a parameter arena, got null");
  for (std::size_t s = 0; s < update_rules::kMaxSlots; ++s) {
    COHORT_CHECK_ARG(!update_rules::uses_slot(rule, s) ||
                         (launch.to[s + 1] != nullptr && launch.from[s + 1] != nullptr),
                     "[fused_update] expected slot ", s, ", got null");
  }
}

// Slots that the rule does not use do not count for the alignment of vectors.
void drop_unused(const update_rules::Rule& rule, UpdateLaunch& launch) {
  for (std::size_t s = 0; s < update_rules::kMaxSlots; ++s) {
    if (!update_rules::uses_slot(rule, s)) launch.to[s + 1] = nullptr;
  }
}

Tensor on_device(std::size_t count, DType dtype) {
  return at::empty({static_cast<int64_t>(count)},
                   at::TensorOptions().dtype(dtype).device(at::kCUDA));
}

// The pinned block is used again when the stream has passed the copy, the
// device's when it has passed what is launched next.
Tensor uploaded(std::span<const int64_t> numbers) {
  const Tensor pinned = at::empty({static_cast<int64_t>(numbers.size())},
                                  at::TensorOptions().dtype(kInt64).pinned_memory(true));
  std::copy(numbers.begin(), numbers.end(), pinned.mutable_data_ptr<int64_t>());
  Tensor out = on_device(numbers.size(), kInt64);
  out.copy_(pinned, /*non_blocking=*/true);
  return out;
}

// Sums over blocks of [begin, end), on the host.
Tensor square_sums(DType dtype, std::span<const std::byte* const> sources, std::size_t begin,
                   std::size_t end) {
  SquaresLaunch launch;
  set_sources(sources, launch);
  launch.is_double = dtype == kFloat64;
  launch.begin = begin;
  launch.end = end;
  const Tensor sums = on_device(update_rules::square_sum_blocks(end - begin), kFloat64);
  launch.out = sums.mutable_data_ptr<double>();
  C10_CUDA_CHECK(launch_squares(launch, c10::cuda::getCurrentCUDAStream()));
  return sums.to(at::kCPU);
}

}  // namespace

void CudaUpdateKernels::update(const variables::RangeUpdate& range, const update_rules::Rule& rule,
                               const update_rules::UpdateOptions& how) {
  if (range.begin >= range.end) return;
  UpdateLaunch launch = launch_of(range, rule, how);
  if (range.from_parameters != nullptr) {
    launch.from[0] = range.from_parameters;
    for (std::size_t s = 0; s < update_rules::kMaxSlots; ++s) {
      launch.from[s + 1] = range.from_slots[s];
    }
  }
  check_arrays(launch, rule);
  drop_unused(rule, launch);
  set_sources(range.sources, launch);
  launch.begin = range.begin;
  launch.end = range.end;
  launch.rule_at = range.rule_at;
  C10_CUDA_CHECK(launch_update(launch, c10::cuda::getCurrentCUDAStream()));
}

std::size_t CudaUpdateKernels::rule_bytes() const { return kRuleBytes; }

void CudaUpdateKernels::write_rule(DType dtype, const update_rules::Rule& rule,
                                   const update_rules::UpdateOptions& how, std::byte* out) const {
  UpdateLaunch launch;
  launch.is_double = dtype == kFloat64;
  set_rule(rule, how, launch);
  cuda::write_rule(launch, out);
}

void CudaUpdateKernels::update_rows(const variables::RowsUpdate& table,
                                    const update_rules::Rule& rule,
                                    const update_rules::UpdateOptions& how) {
  if (table.rows.empty() || table.width == 0) return;
  COHORT_CHECK_ARG(table.gradients != nullptr, "[fused_update_rows] expected gradients, got null");
  RowsLaunch launch{.table = launch_of(table, rule, how)};
  check_arrays(launch.table, rule);
  drop_unused(rule, launch.table);
  launch.table.sources[0] = table.gradients;
  launch.table.source_count = 1;
  launch.count = table.rows.size();
  launch.width = table.width;
  Tensor numbers;
  if (launch.count <= kFewRows) {
    std::copy(table.rows.begin(), table.rows.end(), launch.few);
  } else {
    numbers = uploaded(table.rows);
    launch.numbers = numbers.const_data_ptr<int64_t>();
  }
  C10_CUDA_CHECK(launch_update_rows(launch, c10::cuda::getCurrentCUDAStream()));
}

double CudaUpdateKernels::sum_of_squares(DType dtype, std::span<const std::byte* const> sources,
                                         std::size_t begin, std::size_t end) {
  COHORT_CHECK_ARG(!sources.empty(), "[sum_of_squares] expected one source or more, got none");
  if (begin >= end) return 0;
  const Tensor sums = square_sums(dtype, sources, begin, end);
  const double* const each = sums.const_data_ptr<double>();
  double total = 0;
  for (int64_t i = 0; i < sums.numel(); ++i) total += each[i];
  return total;
}

void CudaUpdateKernels::block_square_sums(DType dtype, std::span<const std::byte* const> sources,
                                          std::size_t size, std::size_t first,
                                          std::span<double> out) {
  COHORT_CHECK_ARG(first + out.size() <= update_rules::square_sum_blocks(size),
                   "[block_square_sums] expected at most ", update_rules::square_sum_blocks(size),
                   " blocks, got up to ", first + out.size());
  if (out.empty()) return;
  const std::size_t begin = first * update_rules::kSquareSumBlock;
  const std::size_t end = std::min(size, begin + out.size() * update_rules::kSquareSumBlock);
  const Tensor sums = square_sums(dtype, sources, begin, end);
  std::copy_n(sums.const_data_ptr<double>(), out.size(), out.begin());
}

}  // namespace cohort::internal::cuda
