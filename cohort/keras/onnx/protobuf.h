// SPDX-License-Identifier: Apache-2.0
//
// Messages of Protocol Buffers, as they lie in a file: fields one behind the other, each with its
// number and how its value is written. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::keras::internal::onnx {

/// A message that is being written, field by field. Threads: a value.
class Message {
 public:
  /// int32, int64, bool and enumerations.
  Message& integer(int field, int64_t value);
  /// float.
  Message& real(int field, float value);
  /// string and bytes.
  Message& text(int field, std::string_view bytes);
  Message& message(int field, const Message& part) { return text(field, part.bytes_); }

  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value);

  std::string bytes_;
};

}  // namespace cohort::keras::internal::onnx
