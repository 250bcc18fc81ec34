// SPDX-License-Identifier: Apache-2.0
//
// The door between the class and the kernels of random numbers: plain data, and launches on a
// stream. Addresses are the device's.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

namespace cohort::internal::cuda {

/// Draws 0 ... size - 1 of a stream; see runtime::RandomStream.
struct Draws {
  std::uint32_t key[2];
  std::uint32_t counter[4];  ///< Of block 0.
  void* out;
  std::size_t size;
  /// Key and counter on the device, where kernels read them when they run; null: those above.
  const std::uint32_t* at;
};

/// 0 where the word is below `threshold`, else the lowest bytes of `bits`: items of 2, 4 or 8
/// bytes.
cudaError_t launch_keep_mask(const Draws& draws, std::uint32_t threshold, std::uint64_t bits,
                             std::size_t item, cudaStream_t stream);
/// low + width * u, at most `last`. Float32, or float64.
cudaError_t launch_uniform(const Draws& draws, bool is_double, double low, double width,
                           double last, cudaStream_t stream);
cudaError_t launch_normal(const Draws& draws, bool is_double, double mean, double stddev,
                          cudaStream_t stream);

}  // namespace cohort::internal::cuda
