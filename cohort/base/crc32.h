// SPDX-License-Identifier: Apache-2.0
//
// CRC-32 (IEEE 802.3): the checksum of zip archives.
#pragma once

#include <cstdint>
#include <string_view>

namespace cohort::internal::base {

/// The checksum of `data` after that of what came before; 0 for nothing before.
/// Cost: 16 bytes a carry-less product, four at once, where the processor has one; else eight bytes
/// a step from tables.
uint32_t crc32(std::string_view data, uint32_t before = 0);

/// As crc32, without the processor's instruction.
uint32_t crc32_portable(std::string_view data, uint32_t before = 0);

}  // namespace cohort::internal::base
