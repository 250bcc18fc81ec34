// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/rows/convert_rows.h"

#include <algorithm>
#include <cstring>

#include "cohort/base/cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cohort::internal::data {
namespace {

/// Shuffled rows are not where the hardware looks next: ask for them some rows ahead.
constexpr std::size_t kRowsAhead = 8;
constexpr int64_t kCacheLine = 64;

/// Before row i is used: asks for row i + kRowsAhead, and at the start for all before it too.
/// Always inline: to gcc 12 a function that only prefetches has no effect, and it drops the call.
[[gnu::always_inline]] inline void prefetch_rows(const uint8_t* data, int64_t row_bytes,
                                                 std::span<const int64_t> rows, std::size_t i) {
  const std::size_t end = std::min(i + kRowsAhead + 1, rows.size());
  for (std::size_t next = i == 0 ? 0 : i + kRowsAhead; next < end; ++next) {
    const uint8_t* row = data + rows[next] * row_bytes;
    for (int64_t byte = 0; byte < row_bytes; byte += kCacheLine) {
      __builtin_prefetch(row + byte, 0, 1);
    }
  }
}

template <class T>
void gather_values(const uint8_t* data, std::span<const int64_t> rows, uint8_t* out) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(out + i * sizeof(T), data + rows[i] * static_cast<int64_t>(sizeof(T)), sizeof(T));
  }
}

void divide_row_portable(const uint8_t* row, int64_t values, float divisor, float* out) {
  for (int64_t i = 0; i < values; ++i) out[i] = static_cast<float>(row[i]) / divisor;
}

template <class Row>
void each_row(const uint8_t* data, int64_t row_values, std::span<const int64_t> rows, float* out,
              Row convert) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    prefetch_rows(data, row_values, rows, i);
    convert(data + rows[i] * row_values, out + static_cast<int64_t>(i) * row_values);
  }
}

#if defined(__x86_64__)

// x * (1/d) and one correction step give the correctly rounded quotient for bytes, and cost less
// than a division: the gather stays bound by memory.
__attribute__((target("avx512f"))) void divide_row_avx512(const uint8_t* row, int64_t values,
                                                          float divisor, float* out) {
  constexpr __mmask16 kAll = 0xffff;
  const __m512 d = _mm512_set1_ps(divisor);
  const __m512 reciprocal = _mm512_set1_ps(1.0F / divisor);
  int64_t i = 0;
  for (; i + 16 <= values; i += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + i));
    // The maskz forms: gcc 12 warns of its own header in the plain ones.
    const __m512 x = _mm512_maskz_cvtepi32_ps(kAll, _mm512_maskz_cvtepu8_epi32(kAll, bytes));
    const __m512 q = _mm512_mul_ps(x, reciprocal);
    const __m512 rest = _mm512_fnmadd_ps(q, d, x);
    _mm512_storeu_ps(out + i, _mm512_fmadd_ps(rest, reciprocal, q));
  }
  divide_row_portable(row + i, values - i, divisor, out + i);
}

__attribute__((target("avx2,fma"))) void divide_row_avx2(const uint8_t* row, int64_t values,
                                                         float divisor, float* out) {
  const __m256 d = _mm256_set1_ps(divisor);
  const __m256 reciprocal = _mm256_set1_ps(1.0F / divisor);
  int64_t i = 0;
  for (; i + 8 <= values; i += 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + i));
    const __m256 x = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    const __m256 q = _mm256_mul_ps(x, reciprocal);
    const __m256 rest = _mm256_fnmadd_ps(q, d, x);
    _mm256_storeu_ps(out + i, _mm256_fmadd_ps(rest, reciprocal, q));
  }
  divide_row_portable(row + i, values - i, divisor, out + i);
}

#endif

using DivideRow = void (*)(const uint8_t* row, int64_t values, float divisor, float* out);

#if defined(__x86_64__)
DivideRow current_divide_row() {
  return base::of_current_isa<DivideRow>(divide_row_portable, divide_row_avx2, divide_row_avx512);
}
#else
DivideRow current_divide_row() { return divide_row_portable; }
#endif

}  // namespace

void gather_rows(const uint8_t* data, int64_t row_bytes, std::span<const int64_t> rows,
                 uint8_t* out) {
  switch (row_bytes) {
    case 1:
      return gather_values<uint8_t>(data, rows, out);
    case 4:
      return gather_values<uint32_t>(data, rows, out);
    case 8:
      return gather_values<uint64_t>(data, rows, out);
    default:
      break;
  }
  if (row_bytes == 0) return;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    prefetch_rows(data, row_bytes, rows, i);
    std::memcpy(out + static_cast<int64_t>(i) * row_bytes, data + rows[i] * row_bytes,
                static_cast<std::size_t>(row_bytes));
  }
}

void gather_rows_divided(const uint8_t* data, int64_t row_values, float divisor,
                         std::span<const int64_t> rows, float* out) {
  const DivideRow divide_row = current_divide_row();
  each_row(data, row_values, rows, out,
           [&](const uint8_t* row, float* to) { divide_row(row, row_values, divisor, to); });
}

}  // namespace cohort::internal::data
