// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/kernels.h"

#include "cohort/base/cpu.h"

namespace cohort::keras::internal {
namespace {

const Kernels& choose() {
#if defined(COHORT_KERNELS_X86)
  return cohort::internal::base::of_current_isa(base::kKernels, avx2::kKernels, avx512::kKernels);
#else
  return base::kKernels;
#endif
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace cohort::keras::internal
