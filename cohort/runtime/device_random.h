// SPDX-License-Identifier: Apache-2.0
//
// Internal: random numbers in a device's own memory. CPUs have the functions of random.h; another
// kind of device brings the same numbers in the same order, made where they are wanted.
#pragma once

#include "cohort/runtime/random.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal::runtime {

/// Fills contiguous tensors of the device with draws 0, 1, ... of a stream, in the order of what
/// the calling thread has started there. Blocks: never. Threads: thread-safe.
class RandomFiller {
 public:
  virtual ~RandomFiller() = default;
  /// Dropout's mask, the bits of fill_keep_mask: of its float32 numbers for float32, and rounded
  /// from them for float16 and bfloat16; those of float64 for float64.
  /// Errors: InvalidArgument for another dtype, and unless 0 <= rate <= 1.
  virtual void keep_mask(const RandomStream& stream, double rate, Tensor& out) = 0;
  /// In [low, high), the bits of fill_uniform. Errors: InvalidArgument unless float32 or float64.
  virtual void uniform(const RandomStream& stream, double low, double high, Tensor& out) = 0;
  /// The numbers of fill_normal, up to the last bits of the mathematical library. Errors: likewise.
  virtual void normal(const RandomStream& stream, double mean, double stddev, Tensor& out) = 0;
};

/// Null for CPUs, and for a kind of device that has none.
RandomFiller* random_filler(c10::DeviceType type);

}  // namespace cohort::internal::runtime
