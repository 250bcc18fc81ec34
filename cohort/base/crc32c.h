// SPDX-License-Identifier: Apache-2.0
//
// CRC-32C (Castagnoli): the checksum of TFRecord files, event files and saved states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cohort::internal::base {

/// The checksum of `data` after that of what came before; 0 for nothing before.
/// Cost: the processor's own instruction where it has one, else eight bytes a step from tables.
uint32_t crc32c(std::string_view data, uint32_t before = 0);

/// As crc32c, without the processor's instruction.
uint32_t crc32c_portable(std::string_view data, uint32_t before = 0);

/// Rotated and shifted, as record files store it: a checksum of data that holds checksums would
/// be weak.
inline uint32_t masked_crc32c(std::string_view data) {
  const uint32_t crc = crc32c(data);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

}  // namespace cohort::internal::base
