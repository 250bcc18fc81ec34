// SPDX-License-Identifier: Apache-2.0
//
// Numbers in the bytes of files, least significant byte first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cohort::internal::data {

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

}  // namespace cohort::internal::data
