// SPDX-License-Identifier: Apache-2.0
//
// Checksums of 32 bits by tables, eight bytes a step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cohort::internal::base {

using CrcTables = std::array<std::array<uint32_t, 256>, 8>;

/// tables[k][b]: what byte b does to the remainder when k more bytes follow it. `polynomial`:
/// reflected.
constexpr CrcTables make_crc_tables(uint32_t polynomial) {
  CrcTables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
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

/// The remainder of `n` bytes after `crc`; neither is inverted.
inline uint32_t update_by_tables(const CrcTables& tables, uint32_t crc, const uint8_t* p,
                                 std::size_t n) {
  for (; n >= 8; n -= 8, p += 8) {
    // Bytes one by one: the same on machines of either byte order.
    crc = tables[7][(crc ^ p[0]) & 0xff] ^ tables[6][((crc >> 8) ^ p[1]) & 0xff] ^
          tables[5][((crc >> 16) ^ p[2]) & 0xff] ^ tables[4][((crc >> 24) ^ p[3]) & 0xff] ^
          tables[3][p[4]] ^ tables[2][p[5]] ^ tables[1][p[6]] ^ tables[0][p[7]];
  }
  for (; n > 0; --n) crc = (crc >> 8) ^ tables[0][(crc ^ *p++) & 0xff];
  return crc;
}

/// The checksum of `data` after that of what came before, without the processor's instructions.
inline uint32_t crc_by_tables(const CrcTables& tables, std::string_view data, uint32_t before) {
  return ~update_by_tables(tables, ~before, reinterpret_cast<const uint8_t*>(data.data()),
                           data.size());
}

}  // namespace cohort::internal::base
