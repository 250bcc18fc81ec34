// SPDX-License-Identifier: Apache-2.0
#include "cohort/reductions/internal/reduce_kernels.h"

#include "cohort/base/cpu.h"

namespace cohort::internal {

const ReduceKernels& reduce_kernels() {
#if defined(COHORT_KERNELS_X86)
  switch (current_isa()) {
    case Isa::kAvx512:
      return avx512::kReduceKernels;
    case Isa::kAvx2:
      return avx2::kReduceKernels;
    case Isa::kBase:
      break;
  }
#endif
  return base::kReduceKernels;
}

}  // namespace cohort::internal
