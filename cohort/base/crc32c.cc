// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace cohort::internal {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Reflected.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

/// tables[k][b]: what byte b does to the remainder when k more bytes follow it.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const uint32_t crc = tables[k - 1][b];
      tables[k][b] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}
constexpr Tables kTables = make_tables();

uint32_t update_portable(uint32_t crc, const uint8_t* p, std::size_t n) {
  for (; n >= 8; n -= 8, p += 8) {
    // Bytes one by one: the same on machines of either byte order.
    crc = kTables[7][(crc ^ p[0]) & 0xff] ^ kTables[6][((crc >> 8) ^ p[1]) & 0xff] ^
          kTables[5][((crc >> 16) ^ p[2]) & 0xff] ^ kTables[4][((crc >> 24) ^ p[3]) & 0xff] ^
          kTables[3][p[4]] ^ kTables[2][p[5]] ^ kTables[1][p[6]] ^ kTables[0][p[7]];
  }
  for (; n > 0; --n) crc = (crc >> 8) ^ kTables[0][(crc ^ *p++) & 0xff];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t update_hardware(uint32_t crc, const uint8_t* p,
                                                           std::size_t n) {
  uint64_t wide = crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word = 0;
    std::memcpy(&word, p, 8);
    wide = _mm_crc32_u64(wide, word);
  }
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
  return update_portable(crc, p, n);
}
bool has_hardware() { return false; }
#endif

}  // namespace

uint32_t crc32c_portable(std::string_view data, uint32_t before) {
  return ~update_portable(~before, reinterpret_cast<const uint8_t*>(data.data()), data.size());
}

uint32_t crc32c(std::string_view data, uint32_t before) {
  if (!has_hardware()) return crc32c_portable(data, before);
  return ~update_hardware(~before, reinterpret_cast<const uint8_t*>(data.data()), data.size());
}

}  // namespace cohort::internal
