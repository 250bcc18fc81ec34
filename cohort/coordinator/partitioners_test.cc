// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/partitioners.h"

#include <gtest/gtest.h>

#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using Parts = std::vector<int64_t>;
using internal::coordinator::shards_of;
using internal::coordinator::split_sizes;

TEST(Partitioners, S01_TheFirstPartsHaveOneRowMore) {
  EXPECT_EQ(split_sizes(13, 5), (Parts{3, 3, 3, 2, 2}));
  EXPECT_EQ(split_sizes(10, 4), (Parts{3, 3, 2, 2}));
}

TEST(Partitioners, FixedShards) {
  EXPECT_EQ(fixed_shards_partitioner(2)({5, 2}, kFloat32), (Parts{2, 1}));
  EXPECT_EQ(fixed_shards_partitioner(9)({5, 2}, kFloat32), (Parts{5, 1}));
}

TEST(Partitioners, P01_P03_SmallestShards) {
  EXPECT_EQ(min_size_partitioner({.min_shard_bytes = 4, .max_shards = 2})({6, 1}, kFloat32),
            (Parts{2, 1}));
  EXPECT_EQ(min_size_partitioner({.min_shard_bytes = 4, .max_shards = 10})({6, 1}, kFloat32),
            (Parts{6, 1}));
  EXPECT_EQ(min_size_partitioner({.max_shards = 2})({1024, 1024}, kFloat32), (Parts{2, 1}));
  // 300 KiB: TensorFlow rounds up, and gives two of 150.
  EXPECT_EQ(min_size_partitioner({.max_shards = 4})({300, 256}, kFloat32), (Parts{2, 1}));
  EXPECT_EQ(min_size_partitioner({})({1024, 1024}, kFloat32), (Parts{1, 1}));
}

TEST(Partitioners, LargestShards) {
  EXPECT_EQ(max_size_partitioner({.max_shard_bytes = 4})({6, 1}, kFloat32), (Parts{6, 1}));
  EXPECT_EQ(max_size_partitioner({.max_shard_bytes = 4, .max_shards = 2})({6, 1}, kFloat32),
            (Parts{2, 1}));
  EXPECT_EQ(max_size_partitioner({.max_shard_bytes = 1024})({6, 1}, kFloat32), (Parts{1, 1}));
}

TEST(Partitioners, P04_RefuseNumbersBelowOne) {
  testing::expect_error<InvalidArgument>({"1 shard", "0"}, [] { fixed_shards_partitioner(0); });
  EXPECT_THROW(min_size_partitioner({.min_shard_bytes = 0}), InvalidArgument);
  EXPECT_THROW(min_size_partitioner({.max_shards = 0}), InvalidArgument);
  EXPECT_THROW(max_size_partitioner({}), InvalidArgument);
  EXPECT_THROW(max_size_partitioner({.max_shard_bytes = 1, .max_shards = 0}), InvalidArgument);
}

TEST(Partitioners, P05_OnlyTheFirstAxisIsCut) {
  const auto both = [](const Shape&, DType) { return Parts{2, 2}; };
  testing::expect_error<InvalidArgument>({"\"w\"", "[4, 4]", "[2, 2]"}, [&] {
    shards_of(both, {4, 4}, kFloat32, "w");
  });
  for (const Parts& wrong : {Parts{}, Parts{0, 1}, Parts{2}}) {
    const auto says = [&](const Shape&, DType) { return wrong; };
    EXPECT_THROW(shards_of(says, {4, 4}, kFloat32, "w"), InvalidArgument);
  }
  EXPECT_EQ(shards_of([](const Shape&, DType) { return Parts{9, 1}; }, {4, 4}, kFloat32, "w"), 4);
  EXPECT_EQ(shards_of(both, {}, kFloat32, "number"), 1);
  EXPECT_EQ(shards_of(nullptr, {4, 4}, kFloat32, "w"), 1);
}

}  // namespace
}  // namespace cohort
