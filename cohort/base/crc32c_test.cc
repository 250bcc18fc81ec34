// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace cohort::internal::base {
namespace {

TEST(Crc32c, PublishedValues) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);  // The polynomial's check value.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(masked_crc32c("\x1a\x11"
                          "CRC test, one two"),
            0x5794d08aU);
}

TEST(Crc32c, TablesAndInstructionAgreeAtEveryLengthAndCut) {
  std::string text;
  for (int i = 0; i < 67; ++i) text += static_cast<char>(i * 37 + 11);
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const std::string_view part = std::string_view(text).substr(0, n);
    EXPECT_EQ(crc32c(part), crc32c_portable(part));
    for (std::size_t cut = 0; cut <= n; ++cut) {
      EXPECT_EQ(crc32c(part.substr(cut), crc32c(part.substr(0, cut))), crc32c(part));
    }
  }
}

// Long data is taken in parts at once.
TEST(Crc32c, TablesAndInstructionAgreeOnLongData) {
  std::string text;
  for (uint32_t i = 0; i < 3000; ++i) text += static_cast<char>(i * i * 2654435761U >> 13);
  for (const std::size_t n : {255, 256, 767, 768, 769, 775, 1535, 1536, 1537, 2304, 3000}) {
    const std::string_view part = std::string_view(text).substr(0, n);
    EXPECT_EQ(crc32c(part), crc32c_portable(part)) << n;
    EXPECT_EQ(crc32c(part, 0x12345678U), crc32c_portable(part, 0x12345678U)) << n;
    EXPECT_EQ(crc32c(part.substr(5), crc32c(part.substr(0, 5))), crc32c(part)) << n;
  }
}

}  // namespace
}  // namespace cohort::internal::base
