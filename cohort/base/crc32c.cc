// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/crc32c.h"

#include <array>
#include <cstring>

#include "cohort/base/internal/crc_tables.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace cohort::internal::base {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Reflected.
constexpr CrcTables kTables = make_crc_tables(kPolynomial);

#if defined(__x86_64__)
// The instruction takes three cycles, and one can begin in each: three parts of the data go on at
// once. A part's remainder moves over the bytes that follow it by tables, which say what the bytes
// of a remainder become behind kPart zero bytes.
constexpr std::size_t kPart = 256;
using ShiftTables = std::array<std::array<uint32_t, 256>, 4>;

constexpr ShiftTables make_shift_tables() {
  std::array<uint32_t, 32> of_bit{};
  for (uint32_t bit = 0; bit < 32; ++bit) {
    uint32_t crc = uint32_t{1} << bit;
    for (std::size_t i = 0; i < kPart; ++i) crc = (crc >> 8) ^ kTables[0][crc & 0xff];
    of_bit[bit] = crc;
  }
  ShiftTables tables{};
  for (uint32_t k = 0; k < 4; ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      for (uint32_t bit = 0; bit < 8; ++bit) {
        if ((b >> bit & 1) != 0) tables[k][b] ^= of_bit[8 * k + bit];
      }
    }
  }
  return tables;
}
constexpr ShiftTables kShift = make_shift_tables();

uint32_t shifted(uint32_t crc) {
  return kShift[0][crc & 0xff] ^ kShift[1][(crc >> 8) & 0xff] ^ kShift[2][(crc >> 16) & 0xff] ^
         kShift[3][crc >> 24];
}

uint64_t load_word(const uint8_t* p) {
  uint64_t word = 0;
  std::memcpy(&word, p, sizeof word);
  return word;
}

__attribute__((target("sse4.2"))) uint32_t update_hardware(uint32_t crc, const uint8_t* p,
                                                           std::size_t n) {
  for (; n >= 3 * kPart; n -= 3 * kPart, p += 3 * kPart) {
    uint64_t first = crc, second = 0, third = 0;
    for (std::size_t i = 0; i < kPart; i += 8) {
      first = _mm_crc32_u64(first, load_word(p + i));
      second = _mm_crc32_u64(second, load_word(p + kPart + i));
      third = _mm_crc32_u64(third, load_word(p + 2 * kPart + i));
    }
    crc = shifted(shifted(static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second)) ^
          static_cast<uint32_t>(third);
  }
  uint64_t wide = crc;
  for (; n >= 8; n -= 8, p += 8) wide = _mm_crc32_u64(wide, load_word(p));
  auto out = static_cast<uint32_t>(wide);
  for (; n > 0; --n) out = _mm_crc32_u8(out, *p++);
  return out;
}
bool has_hardware() {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}
#elif defined(__ARM_FEATURE_CRC32)
uint32_t update_hardware(uint32_t crc, const uint8_t* p, std::size_t n) {
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word = 0;
    std::memcpy(&word, p, 8);
    crc = __crc32cd(crc, word);
  }
  for (; n > 0; --n) crc = __crc32cb(crc, *p++);
  return crc;
}
bool has_hardware() { return true; }
#else
uint32_t update_hardware(uint32_t crc, const uint8_t* p, std::size_t n) {
  return update_by_tables(kTables, crc, p, n);
}
bool has_hardware() { return false; }
#endif

}  // namespace

uint32_t crc32c_portable(std::string_view data, uint32_t before) {
  return crc_by_tables(kTables, data, before);
}

uint32_t crc32c(std::string_view data, uint32_t before) {
  if (!has_hardware()) return crc32c_portable(data, before);
  return ~update_hardware(~before, reinterpret_cast<const uint8_t*>(data.data()), data.size());
}

}  // namespace cohort::internal::base
