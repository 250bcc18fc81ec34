// SPDX-License-Identifier: Apache-2.0
#include "cohort/reductions/internal/reduce_kernels.h"

#include "cohort/base/cpu.h"

namespace cohort::internal::reductions {

const ReduceKernels& reduce_kernels() {
#if defined(COHORT_KERNELS_X86)
  return internal::base::of_current_isa(base::kReduceKernels, avx2::kReduceKernels,
                                        avx512::kReduceKernels);
#else
  return base::kReduceKernels;
#endif
}

}  // namespace cohort::internal::reductions
