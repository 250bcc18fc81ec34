// SPDX-License-Identifier: Apache-2.0
//
// A table of pointers instead of ifuncs: those are resolved before a sanitizer's run-time library
// is ready.
#include "cohort/base/cpu.h"
#include "cohort/update_rules/internal/kernels.h"

namespace cohort::update_rules::internal {

const Kernels& kernels() {
#if defined(COHORT_KERNELS_X86)
  switch (cohort::internal::current_isa()) {
    case cohort::internal::Isa::kAvx512:
      return avx512::kKernels;
    case cohort::internal::Isa::kAvx2:
      return avx2::kKernels;
    case cohort::internal::Isa::kBase:
      break;
  }
#endif
  return base::kKernels;
}

}  // namespace cohort::update_rules::internal
