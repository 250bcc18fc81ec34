// SPDX-License-Identifier: Apache-2.0
//
// Random numbers in the memory of CUDA devices: one launch each, on the calling thread's stream.
#pragma once

#include "cohort/runtime/device_random.h"

namespace cohort::internal::cuda {

/// Masks and uniform numbers have the CPU's bits.
class CudaRandomFiller final : public runtime::RandomFiller {
 public:
  void keep_mask(const runtime::RandomStream& stream, double rate, Tensor& out) override;
  void uniform(const runtime::RandomStream& stream, double low, double high, Tensor& out) override;
  void normal(const runtime::RandomStream& stream, double mean, double stddev,
              Tensor& out) override;
};

}  // namespace cohort::internal::cuda
