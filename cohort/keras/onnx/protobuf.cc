// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/onnx/protobuf.h"

#include <bit>

namespace cohort::keras::internal::onnx {
namespace {

// How a field's value is written; the lower three bits of what stands before it.
constexpr uint64_t kVarint = 0, kLengthFirst = 2, kFourBytes = 5;

uint64_t key_of(int field, uint64_t way) { return static_cast<uint64_t>(field) << 3 | way; }

}  // namespace

// Seven bits a byte, the lowest first; the eighth says that more follow.
void Message::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
  bytes_.push_back(static_cast<char>(value));
}

Message& Message::integer(int field, int64_t value) {
  varint(key_of(field, kVarint));
  varint(static_cast<uint64_t>(value));
  return *this;
}

Message& Message::real(int field, float value) {
  varint(key_of(field, kFourBytes));
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) bytes_.push_back(static_cast<char>(bits >> shift));
  return *this;
}

Message& Message::text(int field, std::string_view bytes) {
  varint(key_of(field, kLengthFirst));
  varint(bytes.size());
  bytes_.append(bytes);
  return *this;
}

}  // namespace cohort::keras::internal::onnx
