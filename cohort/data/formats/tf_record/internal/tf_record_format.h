// SPDX-License-Identifier: Apache-2.0
//
// A TFRecord: u64 length | u32 masked CRC-32C of it | data | u32 masked CRC-32C of the data, all
// little-endian.
#pragma once

#include <cstddef>

namespace cohort::internal::data {

inline constexpr std::size_t kTfRecordHeader = 12;
inline constexpr std::size_t kTfRecordFooter = 4;

}  // namespace cohort::internal::data
