// SPDX-License-Identifier: Apache-2.0
//
// rebatch. Expected values are those of tf.data.
#include <gtest/gtest.h>

#include "cohort/data/dataset.h"
#include "cohort/data/test_elements.h"
#include "cohort/data/test_files.h"

namespace cohort {
namespace {

using testing::error_text;
using testing::expect_resumes;
using testing::texts_of;
using Texts = std::vector<std::string>;

Dataset on_elements(int64_t n) {
  return Dataset::range(n).map([](int64_t x) { return x; });
}
std::vector<Dataset> both(int64_t n) { return {Dataset::range(n), on_elements(n)}; }

TEST(Rebatch, CutsAnewWhereverTheRowsAre) {
  for (const Dataset& source : both(11)) {
    const Dataset batches = source.batch(4);
    EXPECT_EQ(texts_of(batches.rebatch(3)),
              (Texts{"[0, 1, 2]", "[3, 4, 5]", "[6, 7, 8]", "[9, 10]"}));
    EXPECT_EQ(texts_of(batches.rebatch(3, {.drop_remainder = true})),
              (Texts{"[0, 1, 2]", "[3, 4, 5]", "[6, 7, 8]"}));
    EXPECT_EQ(texts_of(batches.rebatch(20)), Texts{"[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"});
    EXPECT_EQ(texts_of(batches.rebatch(20, {.drop_remainder = true})), Texts{});
  }
}

TEST(Rebatch, SizesInTurn) {
  for (const Dataset& source : both(11)) {
    const Dataset batches = source.batch(4);
    EXPECT_EQ(texts_of(batches.rebatch({3, 1})),
              (Texts{"[0, 1, 2]", "[3]", "[4, 5, 6]", "[7]", "[8, 9, 10]"}));
    EXPECT_EQ(texts_of(batches.rebatch({2, 0, 3})),
              (Texts{"[0, 1]", "[]", "[2, 3, 4]", "[5, 6]", "[]", "[7, 8, 9]", "[10]"}));
    EXPECT_EQ(texts_of(batches.rebatch({2, 0, 3}, {.drop_remainder = true})),
              (Texts{"[0, 1]", "[]", "[2, 3, 4]", "[5, 6]", "[]", "[7, 8, 9]"}));
    EXPECT_EQ(texts_of(batches.rebatch({0, 5})),
              (Texts{"[]", "[0, 1, 2, 3, 4]", "[]", "[5, 6, 7, 8, 9]", "[]", "[10]"}));
    // The end is not known yet when the last row is handed out.
    EXPECT_EQ(texts_of(batches.rebatch({4, 7, 0})),
              (Texts{"[0, 1, 2, 3]", "[4, 5, 6, 7, 8, 9, 10]", "[]"}));
  }
  EXPECT_EQ(texts_of(Dataset::range(0).batch(4).rebatch({0, 2})), Texts{});
}

TEST(Rebatch, EmptyBatchesKeepTheShapeOfTheirRows) {
  const Dataset ds =
      Dataset::from_tensor_slices({zeros({6, 2, 3}), std::vector<std::string>(6, "x")})
          .batch(4)
          .rebatch({0, 5});
  auto it = ds.make_iterator();
  EXPECT_EQ(it.next()->spec().to_string(), "(float32[0,2,3], string[0])");
  EXPECT_EQ(it.next()->spec().to_string(), "(float32[5,2,3], string[5])");
}

TEST(Rebatch, RowsInMemoryAreGatheredWhenTheyAreRead) {
  const Dataset ds = Dataset::range(10).shuffle(10, {.seed = 3}).batch(4).rebatch(6);
  auto it = ds.make_iterator();
  const auto across = it.next();  // Of two batches.
  ASSERT_TRUE(across);
  EXPECT_NE(across->uncomputed(), nullptr);
  EXPECT_EQ(texts_of(ds).size(), 2U);
  EXPECT_EQ(
      texts_of(Dataset::range(10).batch(4).shuffle(3, {.seed = 3}).rebatch(6).unbatch()).size(),
      10U);
}

TEST(Rebatch, SpecAndCardinality) {
  const Dataset even = Dataset::range(16).batch(8, {.drop_remainder = true});
  EXPECT_EQ(even.rebatch(5).cardinality(), 4);
  EXPECT_EQ(even.rebatch(5, {.drop_remainder = true}).cardinality(), 3);
  EXPECT_EQ(even.rebatch(5, {.drop_remainder = true}).element_spec().to_string(), "int64[5]");
  EXPECT_EQ(even.rebatch(5).element_spec().to_string(), "int64[?]");
  EXPECT_EQ(even.rebatch({3, 1}, {.drop_remainder = true}).element_spec().to_string(), "int64[?]");
  EXPECT_EQ(even.rebatch({3, 1}).cardinality(), kUnknownCardinality);
  EXPECT_EQ(even.repeat().rebatch(3).cardinality(), kInfiniteCardinality);
  EXPECT_EQ(Dataset::range(11).batch(4).rebatch(3).cardinality(), kUnknownCardinality);
  EXPECT_EQ(even.rebatch(5).batch_rows(), 5);
  EXPECT_EQ(even.rebatch({5, 5}).batch_rows(), 5);
  EXPECT_EQ(even.rebatch({5, 4}).batch_rows(), kUnknownDim);
}

TEST(Rebatch, RefusesWhatIsNoBatch) {
  const Dataset scalars = Dataset::range(4);
  EXPECT_EQ(error_text<InvalidArgument>([&] { scalars.rebatch(2); }),
            "[dataset.rebatch] expected components with a first dimension, got int64[]");
  EXPECT_THROW(scalars.batch(2).rebatch(0), InvalidArgument);
  EXPECT_THROW(scalars.batch(2).rebatch(-1), InvalidArgument);
  EXPECT_THROW(scalars.batch(2).rebatch(std::vector<int64_t>{}), InvalidArgument);
  const Dataset uneven = Dataset::from_tensors({arange(3), arange(4)}).rebatch(2);
  EXPECT_NE(error_text<InvalidArgument>([&] { texts_of(uneven); }).find("(int64[3], int64[4])"),
            std::string::npos);
}

TEST(Rebatch, ResumesEverywhere) {
  for (int64_t rows : {0, 1}) {
    const auto source = [rows] { return rows == 0 ? Dataset::range(11) : on_elements(11); };
    expect_resumes([&] { return source().batch(4).rebatch(3); });
    expect_resumes([&] { return source().batch(2).rebatch({5, 0, 1}).repeat(2); });
    expect_resumes([&] { return source().batch(4).shuffle(2, {.seed = 1}).rebatch({3, 2}); });
  }
}

}  // namespace
}  // namespace cohort
