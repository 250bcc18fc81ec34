// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/dataset.h"
#include "cohort/data/test_values.h"
#include "cohort/testing/expect_error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

namespace cohort {
namespace {

using testing::error_text;
using testing::Numbers;
using testing::values;

/// One vector per element.
std::vector<Numbers> batches(const Dataset& dataset) {
  std::vector<Numbers> out;
  for (const Element& e : dataset) out.push_back(to_vector<int64_t>(e.tensor()));
  return out;
}

Dataset pairs() {
  return Dataset::from_tensor_slices(
      Element::named({{"image", full({6, 28, 28}, 3, kUint8)}, {"label", arange(6)}}));
}

// A range whose elements are no rows in memory: the element path.
Dataset plain_range(int64_t n) {
  return Dataset::range(n).map([](const Tensor& x) { return x; });
}

TEST(Sources, FromTensorsIsOneElement) {
  auto ds = Dataset::from_tensors({tensor({1, 2}), scalar(3)});
  EXPECT_EQ(ds.cardinality(), 1);
  EXPECT_EQ(ds.element_spec().to_string(), "(float32[2], float32[])");
  auto it = ds.make_iterator();
  auto [x, y] = it.next()->as<Tensor, float>();
  EXPECT_EQ(to_vector<float>(x), (std::vector<float>{1, 2}));
  EXPECT_EQ(y, 3);
  EXPECT_FALSE(it.next());
  EXPECT_FALSE(it.next());
}

TEST(Sources, FromTensorSlicesCutsAxisZeroAndCopies) {
  Tensor x = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {3, 2});
  auto ds = Dataset::from_tensor_slices(x);
  EXPECT_EQ(ds.cardinality(), 3);
  EXPECT_EQ(ds.element_spec().to_string(), "int64[2]");
  EXPECT_EQ(batches(ds), (std::vector<Numbers>{{1, 2}, {3, 4}, {5, 6}}));
  for (const Element& e : ds) e.tensor().mul(0).zero_();
  EXPECT_EQ(values(ds), (Numbers{1, 2, 3, 4, 5, 6}));
}

TEST(Sources, SlicesKeepNamesStringsAndDtypes) {
  auto ds =
      Dataset::from_tensor_slices(Element::named({{"id", arange(2, kInt32)},
                                                  {"text", std::vector<std::string>{"a", "b"}},
                                                  {"flag", tensor({1, 0}, kBool)}}));
  EXPECT_EQ(ds.element_spec().to_string(), "(id int32[], text string[], flag bool[])");
  auto it = ds.batch(2).make_iterator();
  Element e = *it.next();
  EXPECT_EQ(e["text"].strings(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(e.spec().to_string(), "(id int32[2], text string[2], flag bool[2])");
  auto one = ds.skip(1).make_iterator();
  EXPECT_EQ((*one.next())["text"].string(), "b");
}

TEST(Sources, SlicesRefuseUnlikeRowsAndScalars) {
  EXPECT_EQ(error_text([] {
              Dataset::from_tensor_slices({arange(3), arange(2)});
            }),
            "[dataset.from_tensor_slices] expected 3 rows in every component, got 2");
  EXPECT_EQ(error_text([] { Dataset::from_tensor_slices(scalar(1)); }),
            "[dataset.from_tensor_slices] expected components with a first dimension to slice, got "
            "float32[]");
}

TEST(Sources, TuplesOfNothingHaveNoRows) {
  EXPECT_THROW(Dataset::from_tensor_slices(Element::tuple({Element::tuple({})})), InvalidArgument);
}

TEST(Sources, Range) {
  EXPECT_EQ(values(Dataset::range(4)), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(values(Dataset::range(2, 9, 3)), (Numbers{2, 5, 8}));
  EXPECT_EQ(values(Dataset::range(5, 0, -2)), (Numbers{5, 3, 1}));
  EXPECT_EQ(Dataset::range(5, 0).cardinality(), 0);
  EXPECT_EQ(values(Dataset::range(5, 0)), Numbers{});
  EXPECT_EQ(batches(Dataset::range(10, 0, -3).batch(3)), (std::vector<Numbers>{{10, 7, 4}, {1}}));
  EXPECT_THROW(Dataset::range(0, 1, 0), InvalidArgument);
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(Dataset::range(kLow, kHigh), InvalidArgument);
  EXPECT_EQ(values(Dataset::range(kLow, kHigh, kHigh)), (Numbers{kLow, -1, kHigh - 1}));
  EXPECT_EQ(values(Dataset::range(1, 0, kLow)), Numbers{1});
}

TEST(Sources, GeneratorRestartsAndIsChecked) {
  int made = 0;
  auto ds = Dataset::from_generator(
      [&made] {
        ++made;
        return [i = int64_t{0}]() mutable -> std::optional<Element> {
          if (i == 3) return std::nullopt;
          return from_vector<int64_t>({i++}, {1});
        };
      },
      TensorSpec{{kUnknownDim}, kInt64});
  EXPECT_EQ(made, 0);
  EXPECT_EQ(ds.cardinality(), kUnknownCardinality);
  EXPECT_EQ(values(ds.repeat(2)), (Numbers{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(made, 2);
  auto wrong = Dataset::from_generator(
      [] { return [] { return std::optional<Element>(tensor({1})); }; }, TensorSpec{{}, kInt64});
  EXPECT_EQ(error_text([&] { values(wrong); }),
            "[dataset.from_generator] element 0: expected int64[], got float32[1]");
}

TEST(Iteration, IsLazyAndRestarts) {
  int calls = 0;
  auto ds = Dataset::range(100).map([&calls](const Tensor& x) {
    ++calls;
    return x;
  });
  auto it = ds.make_iterator();
  EXPECT_EQ(calls, 0);
  it.next();
  it.next();
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(values(ds.take(3)), (Numbers{0, 1, 2}));
  EXPECT_EQ(calls, 5);
}

TEST(Iteration, BatchIsGatheredAtItsFirstAccess) {
  auto it = pairs().batch(4).make_iterator();
  Element batch = *it.next();
  EXPECT_EQ(batch.rows(), 4);
  EXPECT_EQ(batch.size(), 2U);
  EXPECT_EQ(batch.spec().to_string(), "(image uint8[4,28,28], label int64[4])");
  EXPECT_EQ(to_vector<int64_t>(batch["label"]), (Numbers{0, 1, 2, 3}));
  // Copies and slices of a computed batch share its memory.
  Element copy = batch;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_EQ(copy[0].tensor().const_data_ptr(), batch[0].tensor().const_data_ptr());
  EXPECT_EQ(batch.slice(0, 2)[0].tensor().const_data_ptr(), batch[0].tensor().const_data_ptr());
}

TEST(Order, TakeSkipShardRepeatOnRowsAndOnElements) {
  for (const Dataset& ds : {Dataset::range(10), plain_range(10)}) {
    EXPECT_EQ(values(ds.take(3)), (Numbers{0, 1, 2}));
    EXPECT_EQ(values(ds.take(0)), Numbers{});
    EXPECT_EQ(values(ds.take(-1)).size(), 10U);
    EXPECT_EQ(values(ds.take(99)).size(), 10U);
    EXPECT_EQ(values(ds.skip(7)), (Numbers{7, 8, 9}));
    EXPECT_EQ(values(ds.skip(99)), Numbers{});
    EXPECT_EQ(values(ds.skip(-1)), Numbers{});
    EXPECT_EQ(values(ds.repeat().skip(-1)), Numbers{});
    EXPECT_EQ(values(ds.shard(3, 0)), (Numbers{0, 3, 6, 9}));
    EXPECT_EQ(values(ds.shard(3, 2)), (Numbers{2, 5, 8}));
    EXPECT_EQ(values(ds.shard(5, 3)), (Numbers{3, 8}));
    EXPECT_EQ(values(ds.take(2).repeat(3)), (Numbers{0, 1, 0, 1, 0, 1}));
    EXPECT_EQ(values(ds.repeat(0)), Numbers{});
    EXPECT_EQ(values(ds.take(0).repeat()), Numbers{});
    EXPECT_EQ(values(ds.take(4).repeat().take(6)), (Numbers{0, 1, 2, 3, 0, 1}));
  }
  EXPECT_EQ(error_text([] { Dataset::range(3).shard(2, 2); }),
            "[dataset.shard] expected an index in [0, 2), got 2");
  EXPECT_THROW(Dataset::range(3).shard(0, 0), InvalidArgument);
}

// Of passes that differ, one may be empty: it is one of those asked for.
TEST(Repeat, GoesOnBehindAnEmptyPass) {
  const Dataset one_of_four =
      Dataset::range(4).shuffle(4, {.seed = 1}).take(1).filter([](int64_t x) { return x == 0; });
  const std::size_t count = values(one_of_four.repeat(100)).size();
  EXPECT_GT(count, 5U);
  EXPECT_LT(count, 60U);
  EXPECT_EQ(values(Dataset::range(0).repeat(1'000'000'000'000)), Numbers{});
}

TEST(Batch, SizesRemainderAndSpec) {
  for (const Dataset& ds : {Dataset::range(10), plain_range(10)}) {
    EXPECT_EQ(batches(ds.batch(4)), (std::vector<Numbers>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}));
    EXPECT_EQ(batches(ds.batch(4, {.drop_remainder = true})).size(), 2U);
    EXPECT_EQ(batches(ds.batch(99)).size(), 1U);
    EXPECT_EQ(batches(ds.repeat(2).batch(7)).size(), 3U);
    EXPECT_EQ(batches(ds.batch(2).batch(2))[0], (Numbers{0, 1, 2, 3}));
    EXPECT_EQ(values(ds.batch(4).unbatch()), values(ds));
    EXPECT_EQ(batches(ds.batch(4).take(1).repeat(2)),
              (std::vector<Numbers>{{0, 1, 2, 3}, {0, 1, 2, 3}}));
  }
  EXPECT_EQ(pairs().batch(4).element_spec().to_string(), "(image uint8[?,28,28], label int64[?])");
  EXPECT_EQ(pairs().batch(4, {.drop_remainder = true}).element_spec().to_string(),
            "(image uint8[4,28,28], label int64[4])");
  EXPECT_THROW(Dataset::range(3).batch(0), InvalidArgument);
  EXPECT_THROW(Dataset::range(3).unbatch(), InvalidArgument);
}

TEST(Batch, UnlikeShapesNameBothSides) {
  auto ds = Dataset::range(1, 3).map([](const Tensor& n) { return zeros({n.item<int64_t>()}); });
  EXPECT_EQ(error_text([&] { ds.batch(2).make_iterator().next(); }),
            "[dataset.batch] expected equal shapes and dtypes in a batch, got float32[1] and, as "
            "number 1, float32[2]");
}

TEST(Combine, ZipConcatenateEnumerate) {
  auto zipped = Dataset::zip({Dataset::range(3), Dataset::range(10, 20)});
  EXPECT_EQ(zipped.cardinality(), 3);
  Numbers sums;
  for (const Element& e : zipped) {
    auto [a, b] = e.as<int64_t, int64_t>();
    sums.push_back(a + b);
  }
  EXPECT_EQ(sums, (Numbers{10, 12, 14}));
  EXPECT_EQ(values(Dataset::range(2).concatenate(Dataset::range(7, 9))), (Numbers{0, 1, 7, 8}));
  EXPECT_EQ(
      error_text([] { Dataset::range(2).concatenate(Dataset::from_tensor_slices(zeros({2}))); }),
      "[dataset.concatenate] expected elements like int64[], got float32[]");
  auto both = Dataset::from_tensor_slices(zeros({2, 3}))
                  .concatenate(Dataset::from_tensor_slices(zeros({2, 4})));
  EXPECT_EQ(both.element_spec().to_string(), "float32[?]");
  auto counted =
      Dataset::range(5, 7).enumerate(1).map([](int64_t i, int64_t x) { return 100 * i + x; });
  EXPECT_EQ(values(counted), (Numbers{105, 206}));
  EXPECT_EQ(pairs().enumerate().element_spec().to_string(),
            "(int64[], (image uint8[28,28], label int64[]))");
}

TEST(Cardinality, FollowsTfData) {
  auto ds = Dataset::range(10);
  auto unknown = ds.filter([](int64_t) { return true; });
  auto infinite = ds.repeat();
  EXPECT_EQ(ds.batch(3).cardinality(), 4);
  EXPECT_EQ(ds.batch(3, {.drop_remainder = true}).cardinality(), 3);
  EXPECT_EQ(ds.repeat(3).cardinality(), 30);
  EXPECT_EQ(infinite.cardinality(), kInfiniteCardinality);
  EXPECT_EQ(infinite.take(5).cardinality(), 5);
  EXPECT_EQ(infinite.skip(5).cardinality(), kInfiniteCardinality);
  EXPECT_EQ(infinite.batch(4).cardinality(), kInfiniteCardinality);
  EXPECT_EQ(ds.take(0).repeat().cardinality(), 0);
  EXPECT_EQ(ds.take(4).cardinality(), 4);
  EXPECT_EQ(ds.skip(4).cardinality(), 6);
  EXPECT_EQ(ds.skip(-1).cardinality(), 0);
  EXPECT_EQ(ds.shard(3, 0).cardinality(), 4);
  EXPECT_EQ(ds.shard(3, 1).cardinality(), 3);
  EXPECT_EQ(ds.shuffle(3).prefetch().cache().cardinality(), 10);
  EXPECT_EQ(unknown.cardinality(), kUnknownCardinality);
  EXPECT_EQ(unknown.repeat().cardinality(), kUnknownCardinality);
  EXPECT_EQ(unknown.take(0).cardinality(), 0);
  EXPECT_EQ(unknown.batch(2).cardinality(), kUnknownCardinality);
  EXPECT_EQ(ds.concatenate(infinite).cardinality(), kInfiniteCardinality);
  EXPECT_EQ(ds.concatenate(unknown).cardinality(), kUnknownCardinality);
  EXPECT_EQ(Dataset::zip({ds, infinite}).cardinality(), 10);
  EXPECT_EQ(Dataset::zip({ds, unknown}).cardinality(), kUnknownCardinality);
  EXPECT_EQ(ds.batch(5, {.drop_remainder = true}).unbatch().cardinality(), 10);
  EXPECT_EQ(ds.batch(3).unbatch().cardinality(), kUnknownCardinality);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const auto longest = ds.repeat(kMost);
  EXPECT_EQ(longest.cardinality(), kMost);
  EXPECT_EQ(longest.concatenate(ds).cardinality(), kMost);
  EXPECT_EQ(longest.batch(2, {.drop_remainder = true}).unbatch().cardinality(), kMost - 1);
  EXPECT_EQ(ds.batch(5, {.drop_remainder = true}).repeat(kMost).unbatch().cardinality(), kMost);
  EXPECT_EQ(longest.take(7).cardinality(), 7);
}

TEST(Cache, ReadsItsInputOnce) {
  int calls = 0;
  auto ds = Dataset::range(5)
                .map([&calls](const Tensor& x) {
                  ++calls;
                  return x;
                })
                .cache();
  values(ds.take(2));  // An incomplete pass is no cache.
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(values(ds.repeat(3)).size(), 15U);
  EXPECT_EQ(values(ds), (Numbers{0, 1, 2, 3, 4}));
  EXPECT_EQ(calls, 7);
}

TEST(Options, TheLastOnesHold) {
  auto ds = Dataset::range(5);
  EXPECT_EQ(ds.options().auto_shard_policy, AutoShardPolicy::kAuto);
  auto off = ds.with_options({.auto_shard_policy = AutoShardPolicy::kOff}).batch(2).prefetch();
  EXPECT_EQ(off.options().auto_shard_policy, AutoShardPolicy::kOff);
  EXPECT_EQ(values(off).size(), 5U);
}

TEST(Options, ApplyChainsAFunction) {
  auto twice = [](const Dataset& ds) { return ds.repeat(2); };
  EXPECT_EQ(values(Dataset::range(2).apply(twice)), (Numbers{0, 1, 0, 1}));
}

TEST(BatchRows, LooksBackToTheBatch) {
  auto ds = Dataset::range(10);
  EXPECT_EQ(ds.batch_rows(), kUnknownDim);
  EXPECT_EQ(ds.batch(4).batch_rows(), 4);
  EXPECT_EQ(ds.batch(4).repeat().take(3).cache().prefetch().with_options({}).batch_rows(), 4);
  EXPECT_EQ(ds.batch(4).map([](const Tensor& x) { return x; }).batch_rows(), kUnknownDim);
  auto spec = ElementSpec(TensorSpec{{4}, kInt64});
  EXPECT_EQ(ds.batch(4).map([](const Tensor& x) { return x; }, {.spec = spec}).batch_rows(), 4);
}

}  // namespace
}  // namespace cohort
