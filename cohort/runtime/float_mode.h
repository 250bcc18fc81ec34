// SPDX-License-Identifier: Apache-2.0
//
// Flush-to-zero for a piece of work on the calling thread. Adam's moments decay into subnormal
// numbers, and those make every pass over them two to three times as slow.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cohort::internal::runtime {

/// The calling thread's rounding, flush-to-zero and the like, for another thread to compute in.
#if defined(__x86_64__)
inline unsigned float_mode() { return _mm_getcsr(); }
inline void set_float_mode(unsigned mode) { _mm_setcsr(mode); }
#else
inline unsigned float_mode() { return 0; }
inline void set_float_mode(unsigned) {}
#endif

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

}  // namespace cohort::internal::runtime
