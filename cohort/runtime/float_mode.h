// SPDX-License-Identifier: Apache-2.0
//
// Flush-to-zero for a piece of work on the calling thread. Adam's moments decay into subnormal
// numbers, and those make every pass over them two to three times as slow.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cohort::internal {

/// Turns on flush-to-zero and denormals-are-zero; the destructor restores what was set before.
class [[nodiscard]] FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040U); }
  ~FlushDenormals() { _mm_setcsr(before_); }
#else
  FlushDenormals() = default;
  ~FlushDenormals() = default;
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

#if defined(__x86_64__)
 private:
  const unsigned before_;
#endif
};

}  // namespace cohort::internal
