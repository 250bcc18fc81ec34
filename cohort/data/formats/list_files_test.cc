// SPDX-License-Identifier: Apache-2.0
//
// The files that a pattern names.
#include <gtest/gtest.h>

#include <algorithm>

#include "cohort/data/formats/test_records.h"
#include "cohort/data/test_files.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::error_text;
using testing::Strings;
using testing::strings_of;

class ListFiles : public testing::FilesTest {};

TEST_F(ListFiles, SortedOrShuffledByASeed) {
  Strings files;
  for (int i = 10; i < 30; ++i) files.push_back(write("f" + std::to_string(i) + ".txt", ""));
  write("other", "");
  EXPECT_EQ(strings_of(Dataset::list_files(path("f*.txt"), {.shuffle = false})), files);
  const auto shuffled = [&] { return Dataset::list_files(path("f*.txt"), {.seed = 3}); };
  Strings order = strings_of(shuffled());
  EXPECT_NE(order, files);
  EXPECT_EQ(strings_of(shuffled()), order);
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, files);
  EXPECT_EQ(error_text<InvalidArgument>([&] { Dataset::list_files(path("none*")); }),
            "[dataset.list_files] expected files that match " + path("none*") + ", got none");
}

}  // namespace
}  // namespace cohort
