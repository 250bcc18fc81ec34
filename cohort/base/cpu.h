// SPDX-License-Identifier: Apache-2.0
//
// Which vector instructions the library's kernels use: one choice for the process.
#pragma once

namespace cohort::internal::base {

/// Sets that kernels are compiled for; each has all before it. (x86-64 levels 1, 3 and 4.)
enum class Isa { kBase = 0, kAvx2 = 1, kAvx512 = 2 };

/// The best of this processor and build, whatever the environment says.
Isa best_isa();

/// The one to use: the best, at most COHORT_MAX_ISA (avx512, avx2, base).
/// Cost: one load. Threads: thread-safe.
Isa current_isa();

/// Makes current_isa() return this one, for tests.
/// Errors: InvalidArgument if the processor or the build lacks it.
void use_isa(Isa isa);

/// Of kernels that are compiled for each set those of current_isa().
template <class Kernels>
const Kernels& of_current_isa(const Kernels& base, const Kernels& avx2, const Kernels& avx512) {
  switch (current_isa()) {
    case Isa::kAvx512:
      return avx512;
    case Isa::kAvx2:
      return avx2;
    case Isa::kBase:
      break;
  }
  return base;
}

}  // namespace cohort::internal::base
