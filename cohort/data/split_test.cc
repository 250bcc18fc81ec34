// SPDX-License-Identifier: Apache-2.0
//
// Batches in pieces for replicas.
#include <gtest/gtest.h>

#include <thread>

#include "cohort/data/dataset.h"
#include "cohort/data/internal/batching.h"

namespace cohort {
namespace {

using Numbers = std::vector<int64_t>;
using Step = std::vector<Numbers>;

std::vector<Step> steps(const Dataset& dataset, std::size_t replicas,
                        SplitRule rule = SplitRule::kRebatch) {
  std::vector<Step> out;
  auto it = dataset.make_iterator();
  std::vector<Element> pieces(replicas);
  while (it.next_split(pieces, rule)) {
    Step step;
    for (const Element& piece : pieces) {
      EXPECT_EQ(piece.rows(), static_cast<int64_t>(to_vector<int64_t>(piece.tensor()).size()));
      EXPECT_EQ(piece.tensor().scalar_type(), kInt64);
      step.push_back(to_vector<int64_t>(piece.tensor()));
    }
    out.push_back(step);
  }
  EXPECT_FALSE(it.next_split(pieces, rule));
  return out;
}

// The same numbers where rows are in memory, where batches are stacked, and through prefetch.
std::vector<Dataset> ranges(int64_t n, int64_t batch) {
  auto rows = Dataset::range(n).batch(batch);
  auto elements = Dataset::range(n).map([](const Tensor& x) { return x; }).batch(batch);
  return {rows, elements, rows.prefetch(2), elements.cache().take(-1)};
}

TEST(Split, RebatchGivesAPartialBatchToTheFirstPieces) {
  for (const Dataset& ds : ranges(10, 4)) {
    EXPECT_EQ(steps(ds, 2), (std::vector<Step>{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8, 9}, {}}}));
  }
  for (const Dataset& ds : ranges(14, 7)) {
    EXPECT_EQ(steps(ds, 2),
              (std::vector<Step>{{{0, 1, 2, 3}, {4, 5, 6}}, {{7, 8, 9, 10}, {11, 12, 13}}}));
  }
  for (const Dataset& ds : ranges(9, 7)) {
    EXPECT_EQ(steps(ds, 2)[1], (Step{{7, 8}, {}}));
  }
}

TEST(Split, FewerRowsThanReplicas) {
  for (const Dataset& ds : ranges(2, 2)) EXPECT_EQ(steps(ds, 4)[0], (Step{{0}, {1}, {}, {}}));
  for (const Dataset& ds : ranges(1, 8)) EXPECT_EQ(steps(ds, 3)[0], (Step{{0}, {}, {}}));
}

TEST(Split, EvenCutsEveryBatchInEqualPieces) {
  for (const Dataset& ds : ranges(10, 4)) {
    EXPECT_EQ(steps(ds, 2, SplitRule::kEven)[2], (Step{{8}, {9}}));
    EXPECT_EQ(steps(ds, 3, SplitRule::kEven)[0], (Step{{0, 1}, {2, 3}, {}}));
  }
  EXPECT_EQ(steps(Dataset::range(9).batch(4), 2, SplitRule::kEven)[2], (Step{{8}, {}}));
}

TEST(Split, UnknownFullSizeIsEven) {
  auto ds = Dataset::range(10).batch(4).map([](const Tensor& x) { return x; });
  EXPECT_EQ(steps(ds, 2)[2], (Step{{8}, {9}}));
}

TEST(Split, Sizes) {
  using internal::split_sizes;
  EXPECT_EQ(split_sizes(5, 5, 3, SplitRule::kRebatch), (Numbers{2, 2, 1}));
  EXPECT_EQ(split_sizes(4, 4, 3, SplitRule::kRebatch), (Numbers{2, 1, 1}));
  EXPECT_EQ(split_sizes(4, 4, 3, SplitRule::kEven), (Numbers{2, 2, 0}));
  EXPECT_EQ(split_sizes(2, 4, 3, SplitRule::kRebatch), (Numbers{2, 0, 0}));
  EXPECT_EQ(split_sizes(0, 4, 2, SplitRule::kRebatch), (Numbers{0, 0}));
  EXPECT_EQ(split_sizes(2, 2, 4, SplitRule::kRebatch), (Numbers{1, 1, 0, 0}));
}

TEST(Split, EmptyPiecesKeepShapesAndDtypes) {
  auto ds = Dataset::from_tensor_slices({zeros({3, 2, 5}), arange(3, kInt32)}).batch(2);
  auto it = ds.make_iterator();
  std::vector<Element> pieces(2);
  ASSERT_TRUE(it.next_split(pieces));
  ASSERT_TRUE(it.next_split(pieces));
  EXPECT_EQ(pieces[1].rows(), 0);
  EXPECT_EQ(pieces[1].size(), 2U);
  EXPECT_EQ(pieces[1].spec().to_string(), "(float32[0,2,5], int32[0])");
  EXPECT_EQ(shape_of(pieces[1][0]), (Shape{0, 2, 5}));
  EXPECT_EQ(pieces[1][1].tensor().scalar_type(), kInt32);
}

TEST(Split, EveryThreadGathersItsOwnPiece) {
  constexpr int64_t kRows = 1000;
  auto ds = Dataset::from_tensor_slices({arange(kRows).mul(3), arange(kRows)})
                .shuffle(kRows, {.seed = 1})
                .batch(100);
  auto it = ds.make_iterator();
  std::vector<Element> pieces(4);
  int64_t seen = 0;
  while (it.next_split(pieces)) {
    std::vector<int64_t> sums(pieces.size());
    {
      std::vector<std::jthread> replicas;
      for (std::size_t r = 0; r < pieces.size(); ++r) {
        replicas.emplace_back([&pieces, &sums, r] {
          auto [x, y] = pieces[r].as<Tensor, Tensor>();
          sums[r] = x.equal(y.mul(3)) ? y.size(0) : -1;
        });
      }
    }
    for (int64_t sum : sums) {
      EXPECT_EQ(sum, 25);
      seen += sum;
    }
  }
  EXPECT_EQ(seen, kRows);
}

TEST(Split, OnePieceReadByManyThreadsIsGatheredOnce) {
  auto it = Dataset::range(100).batch(100).make_iterator();
  Element batch = *it.next();
  std::vector<const void*> seen(4);
  {
    std::vector<std::jthread> readers;
    for (auto& data : seen) {
      readers.emplace_back([&] { data = batch.tensor().const_data_ptr(); });
    }
  }
  for (const void* data : seen) EXPECT_EQ(data, seen[0]);
}

TEST(Split, UnbatchedElementsAreRefused) {
  auto it = Dataset::range(4).make_iterator();
  std::vector<Element> pieces(2);
  EXPECT_THROW(it.next_split(pieces), InvalidArgument);
}

TEST(Split, ComponentsOfUnlikeRowsAreRefused) {
  const auto few = Dataset::range(16).batch(16);
  const auto many = Dataset::range(20).batch(20);
  for (const Dataset& ds : {Dataset::zip({few, many}), Dataset::zip({many, few}),
                            Dataset::zip({few, Dataset::zip({few, many})})}) {
    for (const std::size_t replicas : {1, 2}) {
      auto it = ds.make_iterator();
      std::vector<Element> pieces(replicas);
      EXPECT_THROW(it.next_split(pieces), InvalidArgument);
    }
  }
}

}  // namespace
}  // namespace cohort
