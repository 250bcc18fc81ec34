// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/crc32.h"

#include "cohort/base/internal/crc_tables.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>

#include <cstring>
#endif

namespace cohort::internal::base {
namespace {

constexpr CrcTables kCrc32Tables = make_crc_tables(0xedb88320);

#if defined(__x86_64__)
// Folding: the remainder of a long polynomial is that of a shorter one, whose last 128 bits have
// taken up the 128 (or 512) before them by two products with constants, which are x^n modulo the
// polynomial. "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Gopal et al., 2009,
// whose constants for reflected bits these are.
constexpr std::size_t kFolded = 64;

#define COHORT_PCLMUL __attribute__((target("pclmul,sse4.1"))) inline

COHORT_PCLMUL __m128i load_block(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

COHORT_PCLMUL __m128i fold(__m128i sum, __m128i by, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(sum, by, 0x00);
  const __m128i high = _mm_clmulepi64_si128(sum, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// The remainder of 128 bits.
COHORT_PCLMUL uint32_t reduced(__m128i sum) {
  const __m128i low_words = _mm_setr_epi32(-1, 0, -1, 0);
  const __m128i by = _mm_set_epi64x(0, 0x0163cd6124);                  // x^64
  const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);  // quotient, polynomial
  const __m128i by_96 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by_96, 0x10));
  const __m128i rest = _mm_srli_si128(sum, 4);
  sum = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(sum, low_words), by, 0x00), rest);
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low_words), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_words), barrett, 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(sum, quotient), 1));
}

// `n`: 64 or more, and whole blocks of 16.
__attribute__((target("pclmul,sse4.1"))) uint32_t fold_blocks(uint32_t crc, const uint8_t* p,
                                                              std::size_t n) {
  const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
  const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  __m128i a = _mm_xor_si128(load_block(p), _mm_cvtsi32_si128(static_cast<int>(crc)));
  __m128i b = load_block(p + 16), c = load_block(p + 32), d = load_block(p + 48);
  for (p += kFolded, n -= kFolded; n >= kFolded; p += kFolded, n -= kFolded) {
    a = fold(a, by_512, load_block(p));
    b = fold(b, by_512, load_block(p + 16));
    c = fold(c, by_512, load_block(p + 32));
    d = fold(d, by_512, load_block(p + 48));
  }
  a = fold(fold(fold(a, by_128, b), by_128, c), by_128, d);
  for (; n >= 16; p += 16, n -= 16) a = fold(a, by_128, load_block(p));
  return reduced(a);
}
#undef COHORT_PCLMUL

uint32_t update_crc32(uint32_t crc, const uint8_t* p, std::size_t n) {
  static const bool folds =
      __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
  if (folds && n >= kFolded) {
    const std::size_t blocks = n / 16 * 16;
    crc = fold_blocks(crc, p, blocks);
    p += blocks;
    n -= blocks;
  }
  return update_by_tables(kCrc32Tables, crc, p, n);
}
#elif defined(__ARM_FEATURE_CRC32)
uint32_t update_crc32(uint32_t crc, const uint8_t* p, std::size_t n) {
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word = 0;
    std::memcpy(&word, p, 8);
    crc = __crc32d(crc, word);
  }
  for (; n > 0; --n) crc = __crc32b(crc, *p++);
  return crc;
}
#else
uint32_t update_crc32(uint32_t crc, const uint8_t* p, std::size_t n) {
  return update_by_tables(kCrc32Tables, crc, p, n);
}
#endif

}  // namespace

uint32_t crc32_portable(std::string_view data, uint32_t before) {
  return crc_by_tables(kCrc32Tables, data, before);
}

uint32_t crc32(std::string_view data, uint32_t before) {
  return ~update_crc32(~before, reinterpret_cast<const uint8_t*>(data.data()), data.size());
}

}  // namespace cohort::internal::base
