// SPDX-License-Identifier: Apache-2.0
//
// Lines out of files: their ends, compressed, missing.
#include <gtest/gtest.h>

#include "cohort/data/formats/test_gzip.h"
#include "cohort/data/formats/test_records.h"
#include "cohort/data/test_files.h"

namespace cohort {
namespace {

using testing::compressed;
using testing::error_text;
using testing::gzip;
using testing::Strings;
using testing::strings_of;

class Lines : public testing::FilesTest {};

TEST_F(Lines, EndsOfLinesAndOfFiles) {
  const std::string a = write("a", "one\ntwo\r\n\nlast"), empty = write("empty", ""),
                    b = write("b", "x\n");
  EXPECT_EQ(strings_of(Dataset::text_lines({a, empty, b})),
            (Strings{"one", "two", "", "last", "x"}));
  const std::string lines = std::string(300, 'a') + "\r\n" + std::string(64, 'b') + "\nc";
  EXPECT_EQ(strings_of(Dataset::text_lines({write("long", lines)}, {.buffer_bytes = 1})),
            (Strings{std::string(300, 'a'), std::string(64, 'b'), "c"}));
  EXPECT_EQ(Dataset::text_lines({a}).element_spec().to_string(), "string[]");
  EXPECT_EQ(Dataset::text_lines({}).cardinality(), 0);
}

TEST_F(Lines, CompressedByNameOrByOption) {
  const std::string text = "one\ntwo\n";
  const std::string members = gzip(text) + gzip("three\n");
  EXPECT_EQ(strings_of(Dataset::text_lines({write("a.gz", members)})),
            (Strings{"one", "two", "three"}));
  EXPECT_EQ(strings_of(Dataset::text_lines({write("b", compressed(text, 15))},
                                           {.compression = Compression::kZlib})),
            (Strings{"one", "two"}));
  const std::string cut = members.substr(0, members.size() - 3);
  EXPECT_NE(error_text<DataLoss>([&] { strings_of(Dataset::text_lines({write("c.gz", cut)})); })
                .find("c.gz at byte " + std::to_string(cut.size()) +
                      " of the file: damaged compressed data"),
            std::string::npos);
  const std::string more = compressed(text, 15) + "x";
  EXPECT_THROW(strings_of(Dataset::text_lines({write("d.zz", more)})), DataLoss);
  // Much more comes out than goes in: what found no room at the end of the file is not lost.
  const std::string zeros(1'000'000, '0');
  EXPECT_EQ(strings_of(Dataset::text_lines({write("e.gz", gzip(zeros))}, {.buffer_bytes = 100})),
            Strings{zeros});
}

TEST_F(Lines, MissingFilesAreNamedAndPassedOver) {
  const auto ds = Dataset::text_lines({path("none"), write("a", "x\n")});
  auto it = ds.make_iterator();
  testing::expect_error(ErrorCode::kNotFound, {"[dataset.text_lines] cannot open " + path("none")},
                        [&] { it.next(); });
  EXPECT_EQ(it.next()->string(), "x");
  EXPECT_FALSE(it.next());
}

}  // namespace
}  // namespace cohort
