// SPDX-License-Identifier: Apache-2.0
//
// Rows of unlike lengths. Expected values are those of tf.data and tf.RaggedTensor.
#include <gtest/gtest.h>

#include "cohort/data/core/internal/state.h"
#include "cohort/data/dataset.h"
#include "cohort/data/formats/example/example.h"
#include "cohort/data/formats/example/example_parser.h"
#include "cohort/data/pipeline/internal/replica_nodes.h"
#include "cohort/data/test_elements.h"
#include "cohort/data/test_files.h"

namespace cohort {
namespace {

using internal::data::SplitPlan;
using internal::data::SplitRule;
using testing::error_text;
using testing::expect_resumes;
using testing::text_of;
using testing::texts_of;
using Texts = std::vector<std::string>;
using Rows = std::vector<std::vector<int64_t>>;

Tensor numbers(const std::vector<int64_t>& values) {
  return from_vector(values, {static_cast<int64_t>(values.size())});
}

Element ragged(const Rows& rows) {
  std::vector<int64_t> values, splits = {0};
  for (const auto& row : rows) {
    values.insert(values.end(), row.begin(), row.end());
    splits.push_back(static_cast<int64_t>(values.size()));
  }
  return Element::ragged(numbers(values), numbers(splits));
}

Element five_rows() { return ragged({{0}, {1, 2}, {}, {3, 4, 5}, {6}}); }

/// [0], [1, 2], [], [3, 4, 5], [6], each with its number.
Dataset sentences() { return Dataset::from_tensors({five_rows(), arange(5)}).unbatch(); }

Dataset split(const Dataset& dataset, const SplitPlan& plan) {
  return Dataset(internal::data::make_split_node(dataset.node(), plan, "[split]"));
}

/// Elements of shape [a, b], with so much known of them.
Dataset matrices(const Shape& known, const std::function<Shape(int64_t)>& shape_of) {
  return Dataset::range(3).map(
      [shape_of](int64_t i) {
        const Shape shape = shape_of(i);
        return arange(shape[0] * shape[1]).reshape(shape);
      },
      {.spec = TensorSpec{known, kInt64}});
}

TEST(Ragged, RowsAreThoseOfTheSplits) {
  const Element e = five_rows();
  EXPECT_TRUE(e.is_ragged());
  EXPECT_EQ(e.rows(), 5);
  EXPECT_EQ(text_of(e.slice(1, 3)), "([1, 2, 3, 4, 5],[0, 2, 2, 5],)");
  EXPECT_EQ(text_of(e.slice(2, 0)), "([],[0],)");
  EXPECT_EQ(text_of(e.slice(0, 2)), "([0, 1, 2],[0, 1, 3],)");
  EXPECT_EQ(e.slice(2, 2).slice(1, 1)["values"].tensor().const_data_ptr(),
            e["values"].tensor().narrow(0, 3, 1).const_data_ptr());
  EXPECT_EQ(Element({e, arange(5)}).slice(3, 2).rows(), 2);
  EXPECT_THROW(Element({e, arange(7)}).slice(0, 1), InvalidArgument);
  const Element small = Element::ragged(numbers({7, 8}), numbers({0, 2}).to(kInt32));
  EXPECT_EQ(small.slice(0, 1).spec().to_string(), "(values int64[2], row_splits int32[2])");
  EXPECT_EQ(small.spec().rows(), 1);
}

TEST(Ragged, RefusesSplitsThatDoNotFit) {
  EXPECT_EQ(error_text<InvalidArgument>([] {
              Element::ragged(numbers({1, 2}), numbers({0, 3}));
            }),
            "[element.ragged] expected int64 or int32 row_splits [rows + 1] that ascend from 0 to "
            "the rows of values, got int64[2] for int64[2]");
  for (const Tensor& splits :
       {numbers({}), numbers({1, 2}), numbers({0, 2, 1, 2}), numbers({0, 2}).to(kFloat32),
        numbers({0, 2}).reshape({1, 2}), Tensor()}) {
    EXPECT_THROW(Element::ragged(numbers({1, 2}), splits), InvalidArgument);
  }
  EXPECT_THROW(Element::ragged(scalar(1), numbers({0, 1})), InvalidArgument);
}

// ---- tuples that only have the names of ragged rows ----

/// Four of them, whose splits would fit.
Dataset named_like_ragged() {
  return Dataset::range(4).map([](int64_t i) {
    return Element::named({{"values", numbers({i, 10 * i})}, {"row_splits", numbers({0, 2})}});
  });
}

using RaggedFiles = testing::FilesTest;

TEST(NamedLikeRagged, IsATupleLikeOthers) {
  const Element table = Element::named({{"values", arange(3)}, {"row_splits", numbers({0, 1, 3})}});
  EXPECT_FALSE(table.is_ragged());
  EXPECT_FALSE(table.spec().is_ragged());
  EXPECT_EQ(table.rows(), 3);
  EXPECT_EQ(table.spec().rows(), 3);
  EXPECT_EQ(text_of(table.slice(1, 2)), "([1, 2],[1, 3],)");
  EXPECT_EQ(table.spec().to_string(), "plain (values int64[3], row_splits int64[3])");
  EXPECT_FALSE(table.spec().compatible_with(Element::ragged(arange(3), numbers({0, 1, 3}))));
  EXPECT_EQ(texts_of(Dataset::from_tensor_slices(table)),
            (Texts{"([0],[0],)", "([1],[1],)", "([2],[3],)"}));
}

TEST(NamedLikeRagged, IsBatchedAndTakenApartByItsComponents) {
  const Dataset ds = named_like_ragged().batch(2);
  const Texts batches = {"([0, 0, 1, 10],[0, 2, 0, 2],)", "([2, 20, 3, 30],[0, 2, 0, 2],)"};
  EXPECT_EQ((*ds.begin()).spec().to_string(), "plain (values int64[2,2], row_splits int64[2,2])");
  EXPECT_EQ(texts_of(ds), batches);
  EXPECT_EQ(texts_of(ds.unbatch()), texts_of(named_like_ragged()));
  EXPECT_EQ(texts_of(ds.unbatch().batch(2)), batches);
  EXPECT_EQ(texts_of(ds.rebatch(2)), batches);
  EXPECT_EQ(texts_of(named_like_ragged().padded_batch(2)), batches);
  EXPECT_EQ(texts_of(named_like_ragged().window(2).flat_map(
                [](const Element& window) { return window.dataset().batch(2); })),
            batches);
}

TEST_F(RaggedFiles, TuplesOfTheirNamesStayTuples) {
  const auto pieces = [](const Dataset& ds) {
    return texts_of(split(ds, {.replicas = 2, .rule = SplitRule::kRebatch}));
  };
  const Dataset batches = named_like_ragged().batch(2);
  const Texts expected = pieces(batches);
  EXPECT_EQ(expected.front(), "(([0, 0],[0, 2],),([1, 10],[0, 2],),)");
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(pieces(batches.cache(path("cache"))), expected);
    EXPECT_EQ(pieces(batches.snapshot(path("snapshot"))), expected);
  }
  batches.save(path("saved"));
  EXPECT_EQ(pieces(Dataset::load(path("saved"))), expected);
  EXPECT_EQ(Dataset::load(path("saved")).element_spec(), batches.element_spec());
  expect_resumes([] { return named_like_ragged().shuffle(3, {.seed = 1}).batch(2).prefetch(1); });
  expect_resumes(
      [] { return split(named_like_ragged().shuffle(4, {.seed = 1}).batch(4), {.replicas = 2}); });
}

TEST_F(RaggedFiles, RowsStayRagged) {
  const Dataset batches = sentences().ragged_batch(2);
  const Texts expected = texts_of(split(batches, {.replicas = 2}));
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(texts_of(split(batches.cache(path("cache")), {.replicas = 2})), expected);
    EXPECT_EQ(texts_of(split(batches.snapshot(path("snapshot")), {.replicas = 2})), expected);
  }
  batches.save(path("saved"));
  EXPECT_EQ(Dataset::load(path("saved")).element_spec(), batches.element_spec());
  EXPECT_TRUE(batches.element_spec()[0].is_ragged());
  const Dataset rows = batches.map([](const Element& e) { return e[0]; });
  const Dataset windows =
      rows.window(2).flat_map([](const Dataset& window) { return window.batch(2); });
  EXPECT_EQ(texts_of(windows), texts_of(rows.batch(2)));
  EXPECT_TRUE((*windows.begin()).is_ragged());
  EXPECT_THROW(texts_of(rows.padded_batch(2)), InvalidArgument);
}

TEST(Ragged, BytesFromBeforeTheyHadAMarkAreRead) {
  internal::data::StateWriter out;
  const auto put_pair = [&](const auto& put_values, const auto& put_splits) {
    out.put_int(5);
    out.put_int(2);
    out.put_text("values");
    put_values();
    out.put_text("row_splits");
    put_splits();
  };
  put_pair([&] { out.put_element(arange(3)); }, [&] { out.put_element(numbers({0, 1, 3})); });
  put_pair([&] { out.put_element(arange(3)); }, [&] { out.put_element(numbers({5, 6, 7})); });
  put_pair(
      [&] {
        out.put_spec(TensorSpec{{kUnknownDim}, kFloat32});
      },
      [&] {
        out.put_spec(TensorSpec{{kUnknownDim}, kInt64});
      });
  const std::string bytes = std::move(out).take();
  internal::data::StateReader in(bytes);
  EXPECT_TRUE(in.get_element().is_ragged());
  EXPECT_FALSE(in.get_element().is_ragged());
  EXPECT_EQ(in.get_spec(), ElementSpec::ragged(TensorSpec{{kUnknownDim}, kFloat32}));
  internal::data::StateWriter again;
  again.put_element(Element::ragged(arange(3), numbers({0, 1, 3})));
  EXPECT_TRUE(bytes.starts_with(std::move(again).take()));
}

TEST(RaggedBatch, StacksWhatIsOfOneShape) {
  const Dataset ds = sentences().ragged_batch(2);
  EXPECT_EQ(ds.element_spec().to_string(), "((values int64[?], row_splits int64[?]), int64[?])");
  EXPECT_EQ(texts_of(ds), (Texts{"(([0, 1, 2],[0, 1, 3],),[0, 1],)",  //
                                 "(([3, 4, 5],[0, 0, 3],),[2, 3],)", "(([6],[0, 1],),[4],)"}));
  EXPECT_EQ(sentences().ragged_batch(2, {.drop_remainder = true}).element_spec().to_string(),
            "((values int64[?], row_splits int64[3]), int64[2])");
  EXPECT_EQ(texts_of(Dataset::range(3).ragged_batch(2)), (Texts{"[0, 1]", "[2]"}));
  EXPECT_EQ(texts_of(testing::on_elements(3).ragged_batch(2)), (Texts{"[0, 1]", "[2]"}));
  EXPECT_EQ(ds.batch_rows(), 2);
}

TEST(RaggedBatch, AsManyLevelsAsAreUnknown) {
  const auto batch = [](const Shape& known, const std::function<Shape(int64_t)>& shape_of) {
    return texts_of(matrices(known, shape_of).ragged_batch(3)).front();
  };
  const auto tall = [](int64_t i) { return Shape{i + 1, 2}; };
  EXPECT_EQ(batch({kUnknownDim, 2}, tall), "([0, 1, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5],[0, 1, 3, 6],)");
  EXPECT_EQ(batch({kUnknownDim, kUnknownDim},
                  [](int64_t i) {
                    return Shape{i + 1, 3 - i};
                  }),
            "(([0, 1, 2, 0, 1, 2, 3, 0, 1, 2],[0, 3, 5, 7, 8, 9, 10],),[0, 1, 3, 6],)");
  EXPECT_EQ(batch({2, kUnknownDim},
                  [](int64_t i) {
                    return Shape{2, i + 1};
                  }),
            "(([0, 1, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5],[0, 1, 2, 4, 6, 9, 12],),[0, 2, 4, 6],)");
  const Dataset two = matrices({kUnknownDim, kUnknownDim}, tall).ragged_batch(2);
  EXPECT_EQ(two.element_spec().to_string(),
            "(values (values int64[?], row_splits int64[?]), row_splits int64[?])");
  EXPECT_EQ(texts_of(two.unbatch()).size(), 3U);
  EXPECT_EQ(texts_of(two.unbatch())[1], "([0, 1, 2, 3],[0, 2, 4],)");
  // Dimensions that are said to be alike are not.
  EXPECT_THROW(texts_of(matrices({kUnknownDim, 2},
                                 [](int64_t i) {
                                   return Shape{2, i + 1};
                                 })
                            .ragged_batch(2)),
               InvalidArgument);
}

TEST(Ragged, BatchesAreJoinedAndTakenApart) {
  const Dataset batches = sentences().ragged_batch(2);
  EXPECT_EQ(texts_of(batches.rebatch(3)), (Texts{"(([0, 1, 2],[0, 1, 3, 3],),[0, 1, 2],)",
                                                 "(([3, 4, 5, 6],[0, 3, 4],),[3, 4],)"}));
  EXPECT_EQ(texts_of(batches.rebatch({0, 5})).front(), "(([],[0],),[],)");
  EXPECT_EQ(texts_of(batches.unbatch()), texts_of(sentences()));
  EXPECT_EQ(batches.unbatch().element_spec().to_string(), "(int64[?], int64[])");
  EXPECT_EQ(batches.take(1).unbatch().cardinality(), kUnknownCardinality);
  // Batches of ragged batches are ragged once more.
  const Dataset rows = batches.map([](const Element& e) { return e[0]; }).batch(2);
  EXPECT_EQ(texts_of(rows), (Texts{"(([0, 1, 2, 3, 4, 5],[0, 1, 3, 3, 6],),[0, 2, 4],)",  //
                                   "(([6],[0, 1],),[0, 1],)"}));
  EXPECT_EQ(texts_of(rows.unbatch()).front(), "([0, 1, 2],[0, 1, 3],)");
  EXPECT_EQ(error_text<InvalidArgument>([&] { batches.padded_batch(2); }),
            "[dataset.padded_batch] expected tensors and strings, got ragged rows (values "
            "int64[?], row_splits int64[?]); ragged_batch keeps them");
}

TEST(Ragged, SlicesOfRowsInMemory) {
  const Dataset ds = Dataset::from_tensor_slices({five_rows(), arange(5)});
  EXPECT_EQ(ds.element_spec().to_string(), "(int64[?], int64[])");
  EXPECT_EQ(ds.cardinality(), 5);
  EXPECT_EQ(texts_of(ds), texts_of(sentences()));
  EXPECT_EQ(texts_of(ds.shuffle(5, {.seed = 1}).repeat(2)).size(), 10U);
  EXPECT_EQ(texts_of(ds.ragged_batch(2)), texts_of(sentences().ragged_batch(2)));
  EXPECT_EQ(texts_of(ds.padded_batch(2)).front(), "([0, 0, 1, 2],[0, 1],)");
  EXPECT_EQ(error_text<InvalidArgument>([&] { texts_of(ds.batch(2)); }),
            "[dataset.batch] expected equal shapes and dtypes in a batch, got int64[1] and, as "
            "number 1, int64[2]");
  EXPECT_EQ(texts_of(ds.take(1).batch(2)), Texts{"([0],[0],)"});
  EXPECT_THROW(Dataset::from_tensor_slices({five_rows(), arange(7)}), InvalidArgument);
  const Element nested = sentences()
                             .map([](const Element& e) { return e[0]; })
                             .ragged_batch(2)
                             .batch(3)
                             .get_single_element();
  EXPECT_EQ(texts_of(Dataset::from_tensor_slices(nested)).at(1), "([3, 4, 5],[0, 0, 3],)");
  // A position is a number.
  auto it = Dataset::from_tensor_slices(Element::ragged(zeros({100000}), numbers({0, 5, 100000})))
                .shuffle(2)
                .make_iterator();
  it.next();
  EXPECT_LT(it.save().size(), 1000U);
  expect_resumes([] {
    return Dataset::from_tensor_slices({five_rows(), arange(5)}).shuffle(3, {.seed = 1}).repeat(2);
  });
}

TEST(Ragged, PiecesForReplicas) {
  const Dataset batches = sentences().ragged_batch(4);
  EXPECT_EQ(texts_of(split(batches, {.replicas = 2})),
            (Texts{"((([0, 1, 2],[0, 1, 3],),[0, 1],),(([3, 4, 5],[0, 0, 3],),[2, 3],),)",
                   "((([6],[0, 1],),[4],),(([],[0],),[],),)"}));
  // TensorFlow's MirroredStrategy over three devices, with AutoShardPolicy OFF.
  EXPECT_EQ(texts_of(split(batches, {.replicas = 3, .rule = SplitRule::kRebatch})),
            (Texts{"((([0, 1, 2],[0, 1, 3],),[0, 1],),(([],[0, 0],),[2],),"
                   "(([3, 4, 5],[0, 3],),[3],),)",
                   "((([6],[0, 1],),[4],),(([],[0],),[],),(([],[0],),[],),)"}));
  EXPECT_EQ(texts_of(split(batches, {.replicas = 4})).back(),
            "((([6],[0, 1],),[4],),(([],[0],),[],),(([],[0],),[],),(([],[0],),[],),)");
  const Dataset shared = split(batches, {.replicas = 1,
                                         .pipelines = 2,
                                         .index = 1,
                                         .choice = internal::data::PieceChoice::kEveryNth});
  EXPECT_EQ(texts_of(shared), (Texts{"((([3, 4, 5],[0, 0, 3],),[2, 3],),)", "((([],[0],),[],),)"}));
  EXPECT_EQ(texts_of(split(batches, {.replicas = 2, .weights = {3, 1}})).front(),
            "((([0, 1, 2],[0, 1, 3, 3],),[0, 1, 2],),(([3, 4, 5],[0, 3],),[3],),)");
  const Dataset whole = sentences().ragged_batch(4, {.drop_remainder = true});
  EXPECT_EQ(split(whole, {.replicas = 2}).element_spec()[0].to_string(),
            "((values int64[?], row_splits int64[3]), int64[2])");
}

TEST(Ragged, ReplicasWithoutAnythingGetNoRows) {
  const Dataset ds = sentences().ragged_batch(2);
  const Dataset rounds(internal::data::make_round_node({ds.node()}, ds.element_spec(), 2, true));
  EXPECT_EQ(texts_of(rounds).back(), "((([6],[0, 1],),[4],),(([],[0],),[],),)");
  const Element none = internal::data::without_rows(ds.element_spec(), "[here]");
  EXPECT_EQ(text_of(none), "(([],[0],),[],)");
  EXPECT_EQ(none.rows(), 0);
  const ElementSpec nested =
      ElementSpec::ragged(ElementSpec::ragged(TensorSpec{{kUnknownDim, 3}, kFloat32}));
  EXPECT_EQ(internal::data::without_rows(nested, "[here]").spec().to_string(),
            "(values (values float32[0,3], row_splits int64[1]), row_splits int64[1])");
}

TEST(Ragged, FeaturesOfExamples) {
  std::vector<std::string> records;
  for (const auto& [words, label] : std::vector<std::pair<std::vector<std::string>, int64_t>>{
           {{"a", "b"}, 0}, {{}, 1}, {{"c"}, 2}}) {
    Example example;
    example.features = {{"words", words}, {"label", std::vector<int64_t>{label}}};
    records.push_back(example.serialize());
  }
  const Dataset batches = Dataset::from_tensor_slices(records).batch(3).apply(
      parse_example_dataset({{"words", RaggedFeature{FeatureType::kString}},
                             {"label", FixedLenFeature{FeatureType::kInt64}}}));
  EXPECT_EQ(texts_of(split(batches, {.replicas = 2})),
            Texts{"(([0, 1],([a, b],[0, 2, 2],),),([2],([c],[0, 1],),),)"});
}

TEST(Ragged, ResumeEverywhere) {
  expect_resumes([] { return sentences().shuffle(3, {.seed = 1}).ragged_batch(2).prefetch(1); });
  expect_resumes([] { return sentences().ragged_batch(4).rebatch({2, 0, 1}); });
  expect_resumes([] { return sentences().ragged_batch(2).unbatch(); });
  expect_resumes([] {
    return split(sentences().ragged_batch(4), {.replicas = 2, .pipelines = 2, .index = 1});
  });
  expect_resumes([] { return sentences().ragged_batch(2).cache().repeat(2); });
}

}  // namespace
}  // namespace cohort
