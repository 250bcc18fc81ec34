// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/crc32.h"

#include <gtest/gtest.h>

#include <string>

namespace cohort::internal::base {
namespace {

TEST(Crc32, PublishedValues) {
  EXPECT_EQ(crc32(""), 0U);
  EXPECT_EQ(crc32("123456789"), 0xcbf43926U);  // The polynomial's check value.
  EXPECT_EQ(crc32("The quick brown fox jumps over the lazy dog"), 0x414fa339U);
  EXPECT_EQ(crc32(std::string(32, '\0')), 0x190a55adU);
}

// From 64 bytes on they are taken in blocks, and what is left behind those by tables.
TEST(Crc32, TablesAndInstructionAgreeAtEveryLengthAndCut) {
  std::string text;
  for (uint32_t i = 0; i < 300; ++i) text += static_cast<char>(i * i * 2654435761U >> 13);
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const std::string_view part = std::string_view(text).substr(0, n);
    ASSERT_EQ(crc32(part), crc32_portable(part)) << n;
    ASSERT_EQ(crc32(part, 0x12345678U), crc32_portable(part, 0x12345678U)) << n;
    for (std::size_t cut = 0; cut <= n; cut += 7) {
      ASSERT_EQ(crc32(part.substr(cut), crc32(part.substr(0, cut))), crc32(part)) << n;
    }
  }
}

}  // namespace
}  // namespace cohort::internal::base
