// SPDX-License-Identifier: Apache-2.0
//
// A TFRecord: u64 length | u32 masked CRC-32C of it | data | u32 masked CRC-32C of the data, all
// little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cohort::internal {

inline constexpr std::size_t kTfRecordHeader = 12;
inline constexpr std::size_t kTfRecordFooter = 4;

template <class T>
T load_little_endian(const char* bytes) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  }
  return value;
}

template <class T>
void append_little_endian(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i));
}

}  // namespace cohort::internal
