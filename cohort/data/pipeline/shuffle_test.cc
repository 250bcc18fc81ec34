// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "cohort/data/dataset.h"
#include "cohort/data/test_values.h"
#include "cohort/runtime/random.h"

namespace cohort {
namespace {

using testing::Numbers;
using testing::values;
Numbers sorted(Numbers v) {
  std::sort(v.begin(), v.end());
  return v;
}

Numbers first(int64_t n) {
  Numbers out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

Dataset plain_range(int64_t n) {
  return Dataset::range(n).map([](const Tensor& x) { return x; });
}

TEST(Shuffle, IsAPermutationOnRowsAndOnElementsAlike) {
  const Numbers rows = values(Dataset::range(50).shuffle(8, {.seed = 3}));
  EXPECT_EQ(sorted(rows), first(50));
  EXPECT_NE(rows, first(50));
  EXPECT_EQ(values(plain_range(50).shuffle(8, {.seed = 3})), rows);
  EXPECT_EQ(values(Dataset::range(50).shuffle(8, {.seed = 3}).batch(7)), rows);
}

TEST(Shuffle, AnElementLeavesNoEarlierThanTheBufferAllows) {
  constexpr int64_t kBuffer = 5;
  const Numbers order = values(Dataset::range(200).shuffle(kBuffer, {.seed = 1}));
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_LT(order[i], static_cast<int64_t>(i) + kBuffer);
  }
}

TEST(Shuffle, BufferOfOneKeepsTheOrder) {
  EXPECT_EQ(values(Dataset::range(20).shuffle(1)), first(20));
}

TEST(Shuffle, FullBufferGivesEveryPermutationTheSameProbability) {
  // 4! = 24 permutations, 24,000 draws: chi-square with 23 degrees of freedom is below 60 in all
  // but 4e-5 of cases, and the seed is fixed.
  std::map<Numbers, int> seen;
  constexpr int kDraws = 24000;
  auto ds = Dataset::range(4).shuffle(4, {.seed = 11});
  for (int i = 0; i < kDraws; ++i) ++seen[values(ds)];
  ASSERT_EQ(seen.size(), 24U);
  double chi = 0;
  for (const auto& [order, count] : seen) {
    const double rest = count - kDraws / 24.0;
    chi += rest * rest / (kDraws / 24.0);
  }
  EXPECT_LT(chi, 60);
}

TEST(Shuffle, EveryPassHasItsOwnOrderThatFollowsFromTheSeed) {
  auto a = Dataset::range(30).shuffle(30, {.seed = 5});
  auto b = Dataset::range(30).shuffle(30, {.seed = 5});
  const Numbers first_pass = values(a);
  const Numbers second_pass = values(a);
  EXPECT_NE(first_pass, second_pass);
  EXPECT_EQ(values(b), first_pass);
  EXPECT_EQ(values(b), second_pass);
  EXPECT_NE(values(Dataset::range(30).shuffle(30, {.seed = 6})), first_pass);
}

TEST(Shuffle, RepeatReshufflesEpochByEpoch) {
  auto ds = Dataset::range(30).shuffle(30, {.seed = 5}).repeat(2);
  const Numbers both = values(ds);
  const Numbers one(both.begin(), both.begin() + 30);
  const Numbers two(both.begin() + 30, both.end());
  EXPECT_EQ(sorted(one), first(30));
  EXPECT_EQ(sorted(two), first(30));
  EXPECT_NE(one, two);
}

TEST(Shuffle, SameOrderInEveryPassOnRequest) {
  auto ds = Dataset::range(30).shuffle(30, {.seed = 5, .reshuffle_each_iteration = false});
  EXPECT_EQ(values(ds), values(ds));
  auto unseeded = Dataset::range(30).shuffle(30, {.reshuffle_each_iteration = false});
  EXPECT_EQ(values(unseeded), values(unseeded));
}

TEST(Shuffle, WithoutASeedFollowsSetSeed) {
  auto two_shuffles = [] {
    return std::pair(values(Dataset::range(30).shuffle(30)),
                     values(Dataset::range(30).shuffle(30)));
  };
  set_seed(7);
  const auto first_run = two_shuffles();
  set_seed(7);
  EXPECT_EQ(two_shuffles(), first_run);
  EXPECT_NE(first_run.first, first_run.second);
  set_seed(8);
  EXPECT_NE(two_shuffles(), first_run);
}

TEST(Shuffle, AfterRepeatBlendsTheEpochs) {
  const Numbers mixed = values(Dataset::range(4).repeat(3).shuffle(12, {.seed = 2}));
  EXPECT_EQ(sorted(mixed), (Numbers{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}));
}

TEST(Shuffle, RefusesAnEmptyBuffer) { EXPECT_THROW(Dataset::range(3).shuffle(0), InvalidArgument); }

}  // namespace
}  // namespace cohort
