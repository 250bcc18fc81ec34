// SPDX-License-Identifier: Apache-2.0
//
// For tests: the kernels of each instruction set that this processor has.
//
//   for (const KernelsOfIsa& table : all_kernels()) table.kernels->moments(...);
#pragma once

#include <vector>

#include "cohort/base/cpu.h"
#include "cohort/keras/layers/internal/kernels.h"

namespace cohort::keras::internal {

struct KernelsOfIsa {
  const char* name;
  const Kernels* kernels;
};

inline std::vector<KernelsOfIsa> all_kernels() {
  std::vector<KernelsOfIsa> out = {{"base", &base::kKernels}};
#if defined(__x86_64__)
  using cohort::internal::base::best_isa;
  using cohort::internal::base::Isa;
  if (best_isa() >= Isa::kAvx2) out.push_back({"avx2", &avx2::kKernels});
  if (best_isa() >= Isa::kAvx512) out.push_back({"avx512", &avx512::kKernels});
#endif
  return out;
}

}  // namespace cohort::keras::internal
