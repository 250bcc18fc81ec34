// SPDX-License-Identifier: Apache-2.0
//
// What a loop that looks again and again says to its core.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cohort::internal::runtime {

/// Leaves the core's units to its other thread for a moment.
inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace cohort::internal::runtime
