// SPDX-License-Identifier: Apache-2.0
//
// Records of a fixed length out of files.
#include <gtest/gtest.h>

#include "cohort/data/formats/test_gzip.h"
#include "cohort/data/formats/test_records.h"
#include "cohort/data/test_files.h"

namespace cohort {
namespace {

using testing::all_of;
using testing::gzip;
using testing::Strings;
using testing::strings_of;

class FixedLength : public testing::FilesTest {};

TEST_F(FixedLength, HeadersFootersAndRemainders) {
  const std::string a = write("a", "HHaabbccF"), b = write("b", "HHF"),
                    c = write("c.gz", gzip("HHddF"));
  const FixedLengthOptions options = {.header_bytes = 2, .footer_bytes = 1};
  const auto ds = Dataset::fixed_length_records({a, b, c}, 2, options);
  EXPECT_EQ(strings_of(ds), (Strings{"aa", "bb", "cc", "dd"}));
  auto it = ds.make_iterator();
  it.next();
  auto resumed = ds.make_iterator(it.save());
  EXPECT_EQ(resumed.next()->string(), "bb");
  EXPECT_EQ(all_of(Dataset::fixed_length_records({write("d", "aabbc"), a}, 2)),
            (Strings{"aa", "bb", "!d at byte 4: truncated record: expected 2 bytes, got 1", "HH",
                     "aa", "bb", "cc", "!a at byte 8: truncated record: expected 2 bytes, got 1"}));
  EXPECT_EQ(all_of(Dataset::fixed_length_records({write("e", "H")}, 2, options)),
            Strings{"!e at byte 0: expected a header of 2 bytes, got 1"});
  EXPECT_THROW(Dataset::fixed_length_records({a}, 0), InvalidArgument);
  EXPECT_THROW(Dataset::fixed_length_records({a}, 1, {.footer_bytes = -1}), InvalidArgument);
}

}  // namespace
}  // namespace cohort
