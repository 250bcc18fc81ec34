// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/cpu.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"

namespace cohort::internal::base {
namespace {

Isa wanted_isa() {
  const char* text = std::getenv("COHORT_MAX_ISA");
  const std::string_view value = text ? text : "";
  if (value == "base") return Isa::kBase;
  if (value == "avx2") return Isa::kAvx2;
  if (!value.empty() && value != "avx512") {
    COHORT_LOG(kWarning, "[cpu] COHORT_MAX_ISA expected avx512, avx2 or base, got ", value);
  }
  return Isa::kAvx512;
}

constexpr int kUndecided = -1;
std::atomic<int> g_isa{kUndecided};

}  // namespace

Isa best_isa() {
#if defined(__x86_64__)
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

Isa current_isa() {
  int isa = g_isa.load(std::memory_order_relaxed);
  if (isa == kUndecided) [[unlikely]] {
    // Threads that meet here choose the same.
    isa = static_cast<int>(std::min(best_isa(), wanted_isa()));
    g_isa.store(isa, std::memory_order_relaxed);
  }
  return static_cast<Isa>(isa);
}

void use_isa(Isa isa) {
  COHORT_CHECK_ARG(isa <= best_isa(), "[cpu.use_isa] expected at most set ",
                   static_cast<int>(best_isa()), ", got ", static_cast<int>(isa),
                   ", which this processor or build lacks");
  g_isa.store(static_cast<int>(isa), std::memory_order_relaxed);
}

}  // namespace cohort::internal::base
