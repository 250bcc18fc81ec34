// SPDX-License-Identifier: Apache-2.0
//
// The door between the class and the kernels of reductions: plain data, and launches on a stream.
// Addresses are the device's.
#pragma once

#include <driver_types.h>

#include <cstddef>

#include "cohort/cuda/internal/number.h"

namespace cohort::internal::cuda {

/// Arrays that one launch reads, and as many that it writes.
inline constexpr std::size_t kMostArrays = 64;

enum class Combine { kSum, kProduct, kMin, kMax };

/// Elements [begin, end): each output gets the sources' reduction in their order, divided by
/// `divisor` if that is not 1 (for floating numbers).
struct ReduceLaunch {
  Number number = {};
  Combine combine = {};
  const void* sources[kMostArrays] = {};
  std::size_t source_count = 0;
  void* outs[kMostArrays] = {};
  std::size_t out_count = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  double divisor = 1;
};
cudaError_t launch_reduce(const ReduceLaunch& reduce, cudaStream_t stream);

}  // namespace cohort::internal::cuda
