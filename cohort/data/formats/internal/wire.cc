// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/formats/internal/wire.h"

#include "cohort/base/check.h"
#include "cohort/data/formats/internal/little_endian.h"

namespace cohort::internal::data {

void WireReader::refuse(uint64_t bytes) const {
  throw DataLoss(str_cat("expected a message with ", bytes, " more bytes, got ", bytes_.size()));
}
void WireReader::refuse_tag() {
  throw DataLoss("expected the number of a protobuf field, from 1 to 2^29 - 1, got another");
}

uint64_t WireReader::long_varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(take(1).front());
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  throw DataLoss("expected a number of at most 10 bytes, got more");
}

uint32_t WireReader::fixed32() { return load_little_endian<uint32_t>(take(4).data()); }

bool WireReader::next_of_other_type(WireField& out) {
  out.bytes = {};
  switch (out.type) {
    case WireType::kVarint:
      out.value = varint();
      return true;
    case WireType::kFixed64:
      out.value = load_little_endian<uint64_t>(take(8).data());
      return true;
    case WireType::kFixed32:
      out.value = fixed32();
      return true;
    default:
      throw DataLoss(
          str_cat("expected a wire type of 0, 1, 2 or 5, got ", static_cast<int>(out.type)));
  }
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void append_bytes_field(std::string& out, uint32_t number, std::string_view bytes) {
  append_varint(out, (uint64_t{number} << 3) | static_cast<uint64_t>(WireType::kBytes));
  append_varint(out, bytes.size());
  out += bytes;
}

}  // namespace cohort::internal::data
