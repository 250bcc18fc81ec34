// SPDX-License-Identifier: Apache-2.0
//
// Numbers and texts of small messages, one after the other, little endian:
//
//   MessageWriter out;  out.number(7);  out.text("worker 1");
//   MessageReader in("[store] ", out.str());  in.number();  in.text();  in.end();
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::internal::rpc {

/// Threads: thread-compatible.
class MessageWriter {
 public:
  void number(uint64_t value);
  void signed_number(int64_t value) { number(static_cast<uint64_t>(value)); }
  /// With all its bits.
  void float64(double value) { number(std::bit_cast<uint64_t>(value)); }
  void text(std::string_view value);
  const std::string& str() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads what a stranger may have written. Errors, of all members: DataLoss.
/// Threads: thread-compatible.
class MessageReader {
 public:
  /// `bytes` stay there. `operation`: for error texts.
  MessageReader(const char* operation, std::string_view bytes)
      : operation_(operation), bytes_(bytes) {}

  uint64_t number();
  int64_t signed_number() { return static_cast<int64_t>(number()); }
  double float64() { return std::bit_cast<double>(number()); }
  /// At most `most`; for what is counted or is one of few.
  uint64_t number_up_to(uint64_t most);
  std::string text();
  /// Nothing may be left.
  void end() const;

 private:
  [[noreturn]] void fail(const char* expected) const;
  const char* operation_;
  std::string_view bytes_;
};

}  // namespace cohort::internal::rpc
