// SPDX-License-Identifier: Apache-2.0
//
// Reductions in the memory of CUDA devices: one launch each, on the calling thread's stream.
#pragma once

#include "cohort/reductions/local_reduce.h"

namespace cohort::internal::cuda {

/// Sources and outputs may lie on other devices that the current one reads and writes. Real numbers
/// of 1 to 8 bytes have a kernel; complex ones go through LibTorch, on memory of the current
/// device's. Sums, products and means have the CPU's bits, numbers of 16 bits those of LibTorch on
/// CPUs: rounded after each addition.
/// Errors: Unimplemented for more than 64 sources or outputs. Blocks: never.
class CudaRangeReducer final : public reductions::RangeReducer {
 public:
  void reduce(const reductions::RangeReduction& range) override;
};

}  // namespace cohort::internal::cuda
