// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/kernels.h"

#include "cohort/base/cpu.h"

namespace cohort::keras::internal {
namespace {

const Kernels& choose() {
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

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace cohort::keras::internal
