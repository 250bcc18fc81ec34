// SPDX-License-Identifier: Apache-2.0
#include "cohort/cross_device_ops/packing.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"

namespace cohort {
namespace {

std::vector<int64_t> sizes_of(const Packer& packer) {
  std::vector<int64_t> sizes;
  for (std::size_t i = 0; i < packer.packs().size(); ++i) sizes.push_back(packer.size(i));
  return sizes;
}

TEST(Packer, D30_TheLastPackTakesTheRemainder) {
  EXPECT_EQ(sizes_of(Packer::concat_and_split({10}, 3)), (std::vector<int64_t>{3, 3, 4}));
  EXPECT_EQ(sizes_of(Packer::concat_and_split({4, 0, 6}, 3)), (std::vector<int64_t>{3, 3, 4}));
  EXPECT_EQ(sizes_of(Packer::concat_and_split({2}, 3)), (std::vector<int64_t>{0, 0, 2}));
  EXPECT_EQ(sizes_of(Packer::concat_and_split({}, 2)), (std::vector<int64_t>{0, 0}));
}

TEST(Packer, CutsAcrossTensors) {
  const Packer packer = Packer::concat_and_split({4, 0, 6}, 3);
  EXPECT_EQ(packer.packs()[0], (Pack{{0, 0, 3}}));
  EXPECT_EQ(packer.packs()[1], (Pack{{0, 3, 4}, {2, 0, 2}}));
  EXPECT_EQ(packer.packs()[2], (Pack{{2, 2, 6}}));
}

TEST(Packer, WithoutPacksTensorsStayWhole) {
  const Packer packer = Packer::concat_and_split({4, 0, 6}, 0);
  EXPECT_EQ(packer.packs(), (std::vector<Pack>{{{0, 0, 4}}, {{1, 0, 0}}, {{2, 0, 6}}}));
}

TEST(Packer, BucketsByBytesFromTheEnd) {
  const std::vector<int64_t> sizes = {1, 2, 3, 4, 5};
  const std::vector<int64_t> bytes = {4, 8, 12, 16, 20};
  // A pack that has exactly as many bytes as wanted takes one more.
  EXPECT_EQ(sizes_of(Packer::by_bytes(sizes, bytes, 20)), (std::vector<int64_t>{9, 6}));
  EXPECT_EQ(Packer::by_bytes(sizes, bytes, 20).packs()[0], (Pack{{4, 0, 5}, {3, 0, 4}}));
  EXPECT_EQ(sizes_of(Packer::by_bytes(sizes, bytes, 1)), (std::vector<int64_t>{5, 4, 3, 2, 1}));
  EXPECT_EQ(sizes_of(Packer::by_bytes(sizes, bytes, 0)), (std::vector<int64_t>{15}));
  EXPECT_TRUE(Packer::by_bytes({}, {}, 0).packs().empty());
}

TEST(Packer, GathersAndScatters) {
  const std::vector<Tensor> from = {arange(4), arange(6).view({2, 3}).add(10)};
  const std::vector<Tensor> to = {zeros({4}, kInt64), zeros({2, 3}, kInt64)};
  for (const int packs : {0, 1, 3, 20}) {
    const Packer packer = Packer::concat_and_split({4, 6}, packs);
    for (const Tensor& t : to) t.zero_();
    for (std::size_t i = 0; i < packer.packs().size(); ++i) {
      const Tensor packed = gather_pack(packer.packs()[i], from);
      EXPECT_EQ(packed.numel(), packer.size(i));
      scatter_pack(packer.packs()[i], packed, to);
    }
    EXPECT_TRUE(to[0].equal(from[0]) && to[1].equal(from[1])) << packs;
  }
  EXPECT_THROW(scatter_pack({{0, 0, 4}}, arange(3), to), InvalidArgument);
}

TEST(Packer, RefusesNegativeNumbers) {
  EXPECT_THROW(Packer::concat_and_split({1}, -1), InvalidArgument);
  EXPECT_THROW(Packer::concat_and_split({-1}, 1), InvalidArgument);
  const std::vector<int64_t> one = {1}, two = {1, 2};
  EXPECT_THROW(Packer::by_bytes(one, one, -1), InvalidArgument);
  EXPECT_THROW(Packer::by_bytes(one, two, 0), InvalidArgument);
}

}  // namespace
}  // namespace cohort
