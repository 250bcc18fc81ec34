// SPDX-License-Identifier: Apache-2.0
//
// batch and rebatch, and batches of strings. Expected values are those of tf.data.
#include <ATen/ops/complex.h>
#include <ATen/ops/imag.h>
#include <gtest/gtest.h>

#include "cohort/data/dataset.h"
#include "cohort/data/pipeline/internal/replica_nodes.h"
#include "cohort/data/test_elements.h"
#include "cohort/data/test_files.h"

namespace cohort {
namespace {

using testing::both;
using testing::error_text;
using testing::expect_resumes;
using testing::on_elements;
using testing::texts_of;
using Texts = std::vector<std::string>;

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

// --- Strings -------------------------------------------------------------------------------------

using Strings = std::vector<std::string>;

Dataset words(const Strings& all) { return Dataset::from_tensor_slices(all); }
/// [], [w0], [w0, w1], ...
Dataset growing_words(int64_t n) {
  return Dataset::range(n).map([](int64_t size) {
    Strings out;
    for (int64_t i = 0; i < size; ++i) out.push_back(str_cat("w", i));
    return out;
  });
}

TEST(Batch, OfPartsThatLieInMemoryInAnyWay) {
  // Row i of the table and, as a column, what a view with strides gives.
  const auto parts = [](int64_t i) {
    const Tensor table = from_vector<float>({0, 1, 2, 3, 4, 5}, {2, 3}) + 10.0 * i;
    return std::tuple(table[1], table.t(), table.narrow(1, i, 0), table[0][2]);
  };
  const Element batch = *Dataset::range(2).map(parts).batch(2).begin();
  using Floats = std::vector<float>;
  EXPECT_EQ(to_vector<float>(batch[0]), (Floats{3, 4, 5, 13, 14, 15}));
  EXPECT_EQ(to_vector<float>(batch[1]), (Floats{0, 3, 1, 4, 2, 5, 10, 13, 11, 14, 12, 15}));
  EXPECT_EQ(batch[1].tensor().sizes().vec(), (Shape{2, 3, 2}));
  EXPECT_EQ(batch[2].tensor().sizes().vec(), (Shape{2, 2, 0}));
  EXPECT_EQ(to_vector<float>(batch[3]), (Floats{2, 12}));
}

TEST(Batch, OfNoNumbersThatAreViews) {
  // A conjugated tensor is a view of numbers that are something else.
  const auto conjugated = [](int64_t i) {
    const Tensor re = from_vector<float>({static_cast<float>(i)}, {1});
    return at::complex(re, re + 1).conj();
  };
  const Element batch = *Dataset::range(2).map(conjugated).batch(2).begin();
  const Tensor imaginary = at::imag(batch.tensor().resolve_conj());
  EXPECT_EQ(to_vector<float>(imaginary.contiguous()), (std::vector<float>{-1, -2}));
  const Tensor whole = at::complex(zeros({3}), ones({3})).conj();
  for (const Dataset& ds :
       {Dataset::from_tensor_slices(whole).batch(3), Dataset::from_tensors(whole).shuffle(1)}) {
    auto it = ds.make_iterator();
    auto same = ds.make_iterator(it.save());
    const Element rows = *same.next();
    EXPECT_EQ(to_vector<float>(at::imag(rows.tensor().resolve_conj()).contiguous()),
              (std::vector<float>{-1, -1, -1}));
  }
}

TEST(Batch, SizesMayStandForAll) {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  for (const Dataset& ds : {Dataset::range(kAll).take(3), testing::on_elements(3)}) {
    EXPECT_EQ(texts_of(ds.batch(kAll)), Texts{"[0, 1, 2]"});
    EXPECT_EQ(texts_of(ds.batch(2).rebatch(kAll)), Texts{"[0, 1, 2]"});
    EXPECT_EQ(texts_of(ds.padded_batch(kAll)), Texts{"[0, 1, 2]"});
    const auto one = [](int64_t x) { return Dataset::range(x, x + 1); };
    EXPECT_EQ(texts_of(ds.interleave(one, {.cycle_length = std::numeric_limits<int>::max()})),
              texts_of(ds));
  }
}

TEST(PaddedBatch, RefusesPaddingThatDoesNotFit) {
  const auto numbers = [](DType dtype) {
    return Dataset::range(4).map([dtype](int64_t n) -> Element { return zeros({n}, dtype); });
  };
  const auto padded = [&](DType dtype, const std::vector<double>& values,
                          const std::vector<Shape>& shapes = {}) {
    const auto ds = numbers(dtype).padded_batch(2, shapes, {.padding_values = values});
    return ds.make_iterator().next();
  };
  EXPECT_EQ(error_text<InvalidArgument>([&] { padded(kUint8, {300}); }),
            "[dataset.padded_batch] expected a padding value that uint8 has, got 300");
  EXPECT_THROW(padded(kUint8, {-1}), InvalidArgument);
  EXPECT_THROW(padded(kInt64, {0.5}), InvalidArgument);
  EXPECT_TRUE(padded(kUint8, {255}));
  EXPECT_TRUE(padded(kFloat32, {0.5}));
  EXPECT_TRUE(padded(kInt64, {-1}));
  EXPECT_THROW(padded(kInt64, {1, 2}), InvalidArgument);
  EXPECT_THROW(padded(kInt64, {}, {{4}, {4}}), InvalidArgument);
  const auto three = Dataset::from_tensor_slices({arange(4), arange(4), arange(4)});
  EXPECT_THROW(three.padded_batch(2, {}, {.padding_values = {1, 2}}), InvalidArgument);
}

TEST(StringBatches, OneMoreDimensionEachTime) {
  for (const Dataset& source :
       {words({"a", "b", "c", "d"}),
        words({"a", "b", "c", "d"}).map([](const std::string& s) { return s; })}) {
    EXPECT_EQ(texts_of(source.batch(3)), (Texts{"[a, b, c]", "[d]"}));
    EXPECT_EQ(source.batch(3).element_spec().to_string(), "string[?]");
    const Dataset twice = source.batch(2).batch(2);
    const auto e = twice.make_iterator().next();
    ASSERT_TRUE(e);
    EXPECT_EQ(e->spec().to_string(), "string[2,2]");
    EXPECT_EQ(e->strings(), (Strings{"a", "b", "c", "d"}));
    EXPECT_EQ(e->slice(1, 1).spec().to_string(), "string[1,2]");
    EXPECT_EQ(e->slice(1, 1).strings(), (Strings{"c", "d"}));
    EXPECT_EQ(texts_of(twice.unbatch()), (Texts{"[a, b]", "[c, d]"}));
    EXPECT_EQ(texts_of(twice.unbatch().unbatch()), (Texts{"a", "b", "c", "d"}));
    EXPECT_EQ(texts_of(twice.rebatch(1)), (Texts{"[a, b]", "[c, d]"}));
    EXPECT_EQ(texts_of(source.batch(3).rebatch(2)), (Texts{"[a, b]", "[c, d]"}));
  }
}

TEST(StringBatches, RowsOfAnyRank) {
  const Dataset rows = Dataset::from_tensor_slices(Element(Strings{"a", "b", "c", "d"}, {2, 2}));
  EXPECT_EQ(rows.element_spec().to_string(), "string[2]");
  EXPECT_EQ(texts_of(rows), (Texts{"[a, b]", "[c, d]"}));
  const auto batch = rows.repeat(2).batch(3).make_iterator().next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->spec().to_string(), "string[3,2]");
  EXPECT_EQ(batch->strings(), (Strings{"a", "b", "c", "d", "a", "b"}));
  EXPECT_THROW(Element(Strings{"a"}, {2}), InvalidArgument);
}

TEST(StringBatches, PiecesForReplicas) {
  const Dataset ds =
      Dataset::from_tensor_slices({Strings{"a", "b", "c", "d", "e"}, arange(5)}).batch(4);
  const Dataset steps(internal::data::make_split_node(ds.node(), {.replicas = 2}, "[split]"));
  EXPECT_EQ(texts_of(steps), (Texts{"(([a, b],[0, 1],),([c, d],[2, 3],),)",  //
                                    "(([e],[4],),([],[],),)"}));
}

TEST(StringBatches, PaddedWithEmptyOnes) {
  const auto e = growing_words(3).padded_batch(3).make_iterator().next();
  ASSERT_TRUE(e);
  EXPECT_EQ(e->spec().to_string(), "string[3,2]");
  EXPECT_EQ(e->strings(), (Strings{"", "", "w0", "", "w0", "w1"}));
  EXPECT_EQ(growing_words(3).padded_batch(3, {{3}}).element_spec().to_string(), "string[?,3]");
  EXPECT_EQ(texts_of(growing_words(2).padded_batch(2, {{3}})), Texts{"[, , , w0, , ]"});
  EXPECT_EQ(texts_of(words({"a", "b"}).padded_batch(2)), Texts{"[a, b]"});
  EXPECT_EQ(error_text<InvalidArgument>([] { texts_of(growing_words(3).padded_batch(3, {{1}})); }),
            "[dataset.padded_batch] expected elements that fit in [1], got string[2] as number 2 "
            "of the batch");
}

TEST(StringBatches, RefuseUnlikeShapes) {
  EXPECT_EQ(error_text<InvalidArgument>([] { texts_of(growing_words(2).batch(2)); }),
            "[dataset.batch] expected equal shapes and dtypes in a batch, got string[0] and "
            "string[1]");
  const Dataset uneven = growing_words(3).skip(1).map([](const Strings& s) {
    return Element(s, {1, static_cast<int64_t>(s.size())});
  });
  EXPECT_EQ(error_text<InvalidArgument>([&] { texts_of(uneven.rebatch(2)); }),
            "[dataset.rebatch] expected batches whose rows have equal shapes and dtypes, got "
            "string[1,1] and string[1,2]");
}

TEST(StringBatches, ResumeEverywhere) {
  expect_resumes([] { return words({"a", "b", "c", "d", "e"}).batch(2).batch(2).prefetch(1); });
  expect_resumes([] { return growing_words(5).padded_batch(2).shuffle(2, {.seed = 1}).unbatch(); });
}

}  // namespace
}  // namespace cohort
