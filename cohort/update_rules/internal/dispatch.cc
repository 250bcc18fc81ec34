// SPDX-License-Identifier: Apache-2.0
//
// A table of pointers instead of ifuncs: those are resolved before a sanitizer's run-time library
// is ready.
#include "cohort/base/cpu.h"
#include "cohort/update_rules/internal/kernels.h"

namespace cohort::update_rules::internal {

const Kernels& kernels() {
#if defined(COHORT_KERNELS_X86)
  return cohort::internal::base::of_current_isa(base::kKernels, avx2::kKernels, avx512::kKernels);
#else
  return base::kKernels;
#endif
}

}  // namespace cohort::update_rules::internal
