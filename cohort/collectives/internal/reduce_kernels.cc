// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/internal/reduce_kernels.h"

#include "cohort/update_rules/internal/kernels.h"

namespace cohort::internal {

const ReduceKernels& reduce_kernels() {
#if defined(COHORT_KERNELS_X86)
  switch (update_rules::internal::current_isa()) {
    case update_rules::internal::Isa::kAvx512:
      return avx512::kReduceKernels;
    case update_rules::internal::Isa::kAvx2:
      return avx2::kReduceKernels;
    case update_rules::internal::Isa::kBase:
      break;
  }
#endif
  return base::kReduceKernels;
}

}  // namespace cohort::internal
