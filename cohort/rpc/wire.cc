// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/wire.h"

#include "cohort/base/check.h"

namespace cohort::internal::rpc {

void MessageWriter::number(uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) {
    bytes_.push_back(static_cast<char>((value >> shift) & 0xff));
  }
}

void MessageWriter::text(std::string_view value) {
  number(value.size());
  bytes_.append(value);
}

void MessageReader::fail(const char* expected) const {
  throw DataLoss(str_cat(operation_, "expected ", expected, " in a message, got ", bytes_.size(),
                         " bytes that are none; the other side is damaged, of another version or "
                         "no part of Cohort"));
}

uint64_t MessageReader::number() {
  if (bytes_.size() < 8) fail("a number of 8 bytes");
  uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes_[i])) << (8 * i);
  }
  bytes_.remove_prefix(8);
  return value;
}

uint64_t MessageReader::number_up_to(uint64_t most) {
  const uint64_t value = number();
  if (value > most) fail("a smaller number");
  return value;
}

std::string MessageReader::text() {
  const uint64_t size = number();
  if (size > bytes_.size()) fail("a whole text");
  std::string out(bytes_.substr(0, size));
  bytes_.remove_prefix(size);
  return out;
}

void MessageReader::end() const {
  if (!bytes_.empty()) fail("the end");
}

}  // namespace cohort::internal::rpc
