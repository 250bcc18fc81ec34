// SPDX-License-Identifier: Apache-2.0
//
// The wire format of protocol buffers, as far as Example and event files need it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::internal::data {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct WireField {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t value = 0;      ///< Of numbers.
  std::string_view bytes;  ///< Of kBytes.

  bool is(uint32_t field, WireType field_type) const {
    return number == field && type == field_type;
  }
};

/// The fields of a message in order. Errors: DataLoss for bytes that are no message.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  bool next(WireField& out);
  bool done() const { return bytes_.empty(); }
  /// Most numbers have one byte.
  uint64_t varint() {
    const bool short_one = !bytes_.empty() && static_cast<uint8_t>(bytes_.front()) < 0x80;
    if (!short_one) return long_varint();
    const auto value = static_cast<uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return value;
  }
  /// Little-endian.
  uint32_t fixed32();

 private:
  std::string_view take(uint64_t bytes) {
    if (bytes > bytes_.size()) refuse(bytes);
    const std::string_view out = bytes_.substr(0, bytes);
    bytes_.remove_prefix(bytes);
    return out;
  }
  uint64_t long_varint();
  bool next_of_other_type(WireField& out);
  [[noreturn]] void refuse(uint64_t bytes) const;
  [[noreturn]] static void refuse_tag();

  std::string_view bytes_;
};

inline bool WireReader::next(WireField& out) {
  if (bytes_.empty()) return false;
  const uint64_t tag = varint();
  out.number = static_cast<uint32_t>(tag >> 3);
  out.type = static_cast<WireType>(tag & 7);
  if (out.number == 0 || tag > UINT32_MAX) refuse_tag();
  if (out.type != WireType::kBytes) return next_of_other_type(out);
  out.bytes = take(varint());
  return true;
}

void append_varint(std::string& out, uint64_t value);
void append_bytes_field(std::string& out, uint32_t number, std::string_view bytes);

}  // namespace cohort::internal::data
