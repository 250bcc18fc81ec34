// SPDX-License-Identifier: Apache-2.0
//
// Writes to rows of tables in the memory of CUDA devices: a stable sort by LibTorch and one launch,
// on the calling thread's stream.
#pragma once

#include "cohort/values/row_kernels.h"

namespace cohort::internal::cuda {

class CudaRowKernels final : public values::RowKernels {
 public:
  void combine(values::RowOp op, Tensor& to, const Tensor& indices, const Tensor& rows) override;
};

}  // namespace cohort::internal::cuda
