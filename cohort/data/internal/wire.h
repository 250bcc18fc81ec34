// SPDX-License-Identifier: Apache-2.0
//
// The wire format of protocol buffers, as far as Example messages need it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::internal {

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
  uint64_t varint();
  /// Little-endian.
  uint32_t fixed32();

 private:
  std::string_view take(uint64_t bytes);

  std::string_view bytes_;
};

void append_varint(std::string& out, uint64_t value);
void append_bytes_field(std::string& out, uint32_t number, std::string_view bytes);

}  // namespace cohort::internal
