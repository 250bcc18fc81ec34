// SPDX-License-Identifier: Apache-2.0
//
// Chooses the kernels once. A table of pointers instead of ifuncs: those are resolved before a
// sanitizer's run-time library is ready.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/update_rules/internal/kernels.h"

namespace cohort::update_rules::internal {
namespace {

const Kernels& kernels_of(Isa isa) {
#if defined(COHORT_KERNELS_X86)
  if (isa == Isa::kAvx512) return avx512::kKernels;
  if (isa == Isa::kAvx2) return avx2::kKernels;
#endif
  (void)isa;
  return base::kKernels;
}

Isa wanted_isa() {
  const char* text = std::getenv("COHORT_MAX_ISA");
  const std::string_view value = text ? text : "";
  if (value == "base") return Isa::kBase;
  if (value == "avx2") return Isa::kAvx2;
  if (!value.empty() && value != "avx512") {
    COHORT_LOG(kWarning, "[update_rules] COHORT_MAX_ISA expected avx512, avx2 or base, got ",
               value);
  }
  return Isa::kAvx512;
}

const Kernels* choose() { return &kernels_of(std::min(best_isa(), wanted_isa())); }

std::atomic<const Kernels*> g_kernels{nullptr};

}  // namespace

Isa best_isa() {
#if defined(COHORT_KERNELS_X86)
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v4) return Isa::kAvx512;
  if (v3) return Isa::kAvx2;
#endif
  return Isa::kBase;
}

const Kernels& kernels() {
  const Kernels* chosen = g_kernels.load(std::memory_order_acquire);
  if (chosen == nullptr) [[unlikely]] {
    // Threads that meet here choose the same.
    chosen = choose();
    g_kernels.store(chosen, std::memory_order_release);
  }
  return *chosen;
}

Isa current_isa() {
  const Kernels* chosen = &kernels();
  if (chosen == &base::kKernels) return Isa::kBase;
  return chosen == &kernels_of(Isa::kAvx2) ? Isa::kAvx2 : Isa::kAvx512;
}

void use_isa(Isa isa) {
  COHORT_CHECK_ARG(isa <= best_isa(), "[update_rules.use_isa] expected at most ",
                   kernels_of(best_isa()).name, ", got a set that this processor or build lacks");
  g_kernels.store(&kernels_of(isa), std::memory_order_release);
}

}  // namespace cohort::update_rules::internal
