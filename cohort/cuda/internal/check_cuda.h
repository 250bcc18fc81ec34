// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cohort/base/check.h"

namespace cohort::internal::cuda {

/// Errors: Internal "<what>: <CUDA's words>".
inline void check_cuda(const char* what, cudaError_t result) {
  if (result == cudaSuccess) return;
  throw Internal(str_cat(what, ": ", cudaGetErrorString(result)));
}

}  // namespace cohort::internal::cuda
