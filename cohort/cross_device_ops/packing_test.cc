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

TEST(Packer, RefusesNegativeNumbers) {
  EXPECT_THROW(Packer::concat_and_split({1}, -1), InvalidArgument);
  EXPECT_THROW(Packer::concat_and_split({-1}, 1), InvalidArgument);
}

}  // namespace
}  // namespace cohort
