// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/kernels.h"

#include <string_view>

#include "cohort/update_rules/internal/kernels.h"

namespace cohort::keras::internal {
namespace {

// One choice for the process: that of the update rules.
const Kernels& choose() {
#if defined(COHORT_KERNELS_X86)
  const std::string_view isa = update_rules::internal::kernels().name;
  if (isa == "avx512") return avx512::kKernels;
  if (isa == "avx2") return avx2::kKernels;
#endif
  return base::kKernels;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace cohort::keras::internal
