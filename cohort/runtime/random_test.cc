// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "cohort/base/cpu.h"
#include "cohort/base/error.h"
#include "cohort/runtime/philox.h"

namespace cohort {
namespace {

using internal::runtime::RandomStream;
using Words = std::array<uint32_t, 4>;

// The vectors that the generator's authors publish with it.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(internal::runtime::philox({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t f = 0xffffffff;
  EXPECT_EQ(internal::runtime::philox({f, f, f, f}, {f, f}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(internal::runtime::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                                      {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, GroupsAreTheScalarGeneratorsWordsByEverySetOfInstructions) {
  const RandomStream stream(1, 2, 3, 4);
  const internal::base::Isa before = internal::base::current_isa();
  // The second lies across the border of the block counter's lowest 32 bits.
  for (uint64_t first : {uint64_t{0}, (uint64_t{1} << 28) - 1, (uint64_t{1} << 35) + 7}) {
    std::vector<uint32_t> expected(3 * 64);
    for (uint64_t i = 0; i < expected.size(); ++i) expected[i] = stream.word(first * 64 + i, 9);
    for (int isa = 0; isa <= static_cast<int>(internal::base::best_isa()); ++isa) {
      internal::base::use_isa(static_cast<internal::base::Isa>(isa));
      std::vector<uint32_t> words(expected.size());
      stream.many_words(first, 3, 9, words.data());
      EXPECT_EQ(words, expected) << first << " by set " << isa;
    }
  }
  internal::base::use_isa(before);
}

TEST(RandomStream, EveryPartOfTheKeyCounts) {
  std::set<uint32_t> seen;
  seen.insert(RandomStream(1, 1, 1, 1).word(0));
  seen.insert(RandomStream(2, 1, 1, 1).word(0));
  seen.insert(RandomStream(1, 2, 1, 1).word(0));
  seen.insert(RandomStream(1, 1, 2, 1).word(0));
  seen.insert(RandomStream(1, 1, uint64_t{1} << 40, 1).word(0));
  seen.insert(RandomStream(1, 1, 1, 2).word(0));
  seen.insert(RandomStream(1, 1, 1, -1).word(0));
  seen.insert(RandomStream(1, 1, 1, 1).word(1));
  seen.insert(RandomStream(1, 1, 1, 1).word(0, 1));
  EXPECT_EQ(seen.size(), 9u);
  EXPECT_THROW(RandomStream(1, 1, 1, 40000), InvalidArgument);
}

template <class T, class Fill>
void expect_parts_equal_whole(Fill fill) {
  const RandomStream stream(5, 6, 7, 0);
  std::vector<T> whole(3001);
  fill(stream, std::span<T>(whole), uint64_t{0});
  std::vector<T> parts(3001);
  std::size_t begin = 0;
  for (std::size_t end : {1, 2, 65, 1024, 1025, 2222, 3001}) {
    fill(stream, std::span<T>(parts).subspan(begin, end - begin), uint64_t{begin});
    begin = end;
  }
  EXPECT_EQ(whole, parts);
}

template <class T>
class Fill : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Fill, Reals);

TYPED_TEST(Fill, DrawKIsTheSameHoweverItIsReached) {
  using T = TypeParam;
  expect_parts_equal_whole<T>([](const RandomStream& s, std::span<T> out, uint64_t first) {
    internal::runtime::fill_uniform<T>(s, -1, 1, out, first);
  });
  expect_parts_equal_whole<T>([](const RandomStream& s, std::span<T> out, uint64_t first) {
    internal::runtime::fill_normal<T>(s, 0, 1, out, first);
  });
  expect_parts_equal_whole<T>([](const RandomStream& s, std::span<T> out, uint64_t first) {
    internal::runtime::fill_truncated_normal<T>(s, 0, 1, out, first);
  });
  expect_parts_equal_whole<T>([](const RandomStream& s, std::span<T> out, uint64_t first) {
    internal::runtime::fill_keep_mask<T>(s, 0.3, out, first);
  });
}

struct Moments {
  double mean = 0, variance = 0, skew = 0, kurtosis = 0;
};

template <class T>
Moments moments_of(const std::vector<T>& x) {
  Moments m;
  const double n = static_cast<double>(x.size());
  for (T v : x) m.mean += v / n;
  for (T v : x) m.variance += (v - m.mean) * (v - m.mean) / n;
  for (T v : x) m.skew += std::pow((v - m.mean) / std::sqrt(m.variance), 3) / n;
  for (T v : x) m.kurtosis += std::pow((v - m.mean) / std::sqrt(m.variance), 4) / n;
  return m;
}

TYPED_TEST(Fill, UniformIsUniform) {
  using T = TypeParam;
  std::vector<T> x(200000);
  internal::runtime::fill_uniform<T>(RandomStream(1, 2, 3, 0), -2, 4, x);
  const Moments m = moments_of(x);
  EXPECT_NEAR(m.mean, 1, 0.02);
  EXPECT_NEAR(m.variance, 3, 0.03);
  EXPECT_NEAR(m.kurtosis, 1.8, 0.02);
  EXPECT_GE(*std::min_element(x.begin(), x.end()), -2);
  EXPECT_LT(*std::max_element(x.begin(), x.end()), 4);
  // So narrow that rounding would reach the upper end.
  internal::runtime::fill_uniform<T>(RandomStream(1, 2, 3, 0), 1, std::nextafter(T{1}, T{2}), x);
  EXPECT_EQ(*std::max_element(x.begin(), x.end()), 1);
}

TYPED_TEST(Fill, NormalIsNormal) {
  using T = TypeParam;
  std::vector<T> x(200000);
  internal::runtime::fill_normal<T>(RandomStream(1, 2, 3, 0), 5, 2, x);
  const Moments m = moments_of(x);
  EXPECT_NEAR(m.mean, 5, 0.02);
  EXPECT_NEAR(m.variance, 4, 0.06);
  EXPECT_NEAR(m.skew, 0, 0.03);
  EXPECT_NEAR(m.kurtosis, 3, 0.06);
  double neighbours = 0;
  for (std::size_t i = 1; i < x.size(); ++i) neighbours += (x[i] - 5) * (x[i - 1] - 5) / 4;
  EXPECT_NEAR(neighbours / static_cast<double>(x.size()), 0, 0.01);
}

TYPED_TEST(Fill, TruncatedNormalStaysWithinTwoDeviations) {
  using T = TypeParam;
  std::vector<T> x(200000);
  internal::runtime::fill_truncated_normal<T>(RandomStream(1, 2, 3, 0), 0, 1, x);
  const Moments m = moments_of(x);
  EXPECT_LE(*std::max_element(x.begin(), x.end()), 2);
  EXPECT_GE(*std::min_element(x.begin(), x.end()), -2);
  EXPECT_NEAR(m.mean, 0, 0.01);
  EXPECT_NEAR(std::sqrt(m.variance), 0.87962566103423978, 0.004);  // Known in closed form.
}

TYPED_TEST(Fill, KeepMaskKeepsTheExpectation) {
  using T = TypeParam;
  std::vector<T> x(200000);
  internal::runtime::fill_keep_mask<T>(RandomStream(1, 2, 3, 0), 0.2, x);
  for (T v : x) ASSERT_TRUE(v == 0 || v == static_cast<T>(1.25));
  EXPECT_NEAR(moments_of(x).mean, 1, 0.005);
  internal::runtime::fill_keep_mask<T>(RandomStream(1, 2, 3, 0), 0, x);
  EXPECT_EQ(moments_of(x).mean, moments_of(std::vector<T>(200000, 1)).mean);
  internal::runtime::fill_keep_mask<T>(RandomStream(1, 2, 3, 0), 1, x);
  EXPECT_EQ(moments_of(x).mean, 0);
  EXPECT_THROW(internal::runtime::fill_keep_mask<T>(RandomStream(1, 2, 3, 0), 1.5, x),
               InvalidArgument);
}

TEST(UniformBelow, IsEquallyLikely) {
  const RandomStream stream(1, 2, 3, 0);
  std::vector<int> counts(7);
  for (uint64_t i = 0; i < 70000; ++i) ++counts.at(internal::runtime::uniform_below(stream, i, 7));
  for (int count : counts) EXPECT_NEAR(count, 10000, 500);
  // Half of all words are refused for this range: the draws go on to further attempts.
  const uint64_t wide = (uint64_t{1} << 63) + 1;
  for (uint64_t i = 0; i < 1000; ++i)
    EXPECT_LT(internal::runtime::uniform_below(stream, i, wide), wide);
  EXPECT_THROW(internal::runtime::uniform_below(stream, 0, 0), InvalidArgument);
}

TEST(Permutation, HoldsEveryNumberOnce) {
  const RandomStream stream(1, 2, 3, 0);
  std::vector<int64_t> order = internal::runtime::random_permutation(stream, 5000);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(order, internal::runtime::random_permutation(stream, 5000));
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 5000; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
  EXPECT_TRUE(internal::runtime::random_permutation(stream, 0).empty());
  // Each of the six orders of three is as likely as the others.
  std::map<std::vector<int64_t>, int> counts;
  for (uint64_t step = 0; step < 6000; ++step) {
    ++counts[internal::runtime::random_permutation(RandomStream(1, 2, step, 0), 3)];
  }
  EXPECT_EQ(counts.size(), 6u);
  for (const auto& [permutation, count] : counts) EXPECT_NEAR(count, 1000, 130);
}

TEST(Seed, FixesTensorsAndOperationNumbers) {
  set_seed(11);
  EXPECT_EQ(internal::runtime::current_seed(), 11u);
  EXPECT_EQ(internal::runtime::next_operation_number(), 0u);
  EXPECT_EQ(internal::runtime::next_operation_number(), 1u);
  const auto first = to_vector<float>(random_normal({3, 5}));
  const auto second = to_vector<float>(random_normal({3, 5}));
  EXPECT_NE(first, second);
  set_seed(11);
  EXPECT_EQ(internal::runtime::next_operation_number(), 0u);
  EXPECT_EQ(to_vector<float>(random_normal({3, 5})), first);
  set_seed(12);
  EXPECT_NE(to_vector<float>(random_normal({3, 5})), first);
}

TEST(Seed, TensorsHaveTheirDtype) {
  set_seed(1);
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    const Tensor x = random_uniform({4, 2}, dtype);
    EXPECT_EQ(x.scalar_type(), dtype);
    EXPECT_EQ(shape_of(x), (Shape{4, 2}));
  }
  EXPECT_EQ(random_normal({0, 2}).numel(), 0);
  EXPECT_THROW(random_normal({2}, kInt32), InvalidArgument);
}

TEST(Seed, ThreadsDrawTheSame) {
  const RandomStream stream(1, 2, 3, 0);
  std::vector<float> alone(10000), shared(10000);
  internal::runtime::fill_normal<float>(stream, 0, 1, alone);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        internal::runtime::fill_normal<float>(stream, 0, 1,
                                              std::span(shared).subspan(t * 2500, 2500), t * 2500);
      });
    }
  }
  EXPECT_EQ(alone, shared);
}

TEST(RandomSeeds, TakeBackTheLastDrawsOnly) {
  internal::runtime::RandomSeeds seeds(2);
  for (uint64_t draw = 0; draw < 3; ++draw) EXPECT_EQ(seeds.next_step(1), draw);
  EXPECT_EQ(seeds.next_step(0), 0);
  seeds.take_back(1, 1, 2);
  EXPECT_EQ(seeds.next_step(1), 1);
  seeds.take_back(1, 0, 1);  // another draw has followed
  EXPECT_EQ(seeds.next_step(1), 2);
  EXPECT_EQ(seeds.next_step(0), 1);
}

}  // namespace
}  // namespace cohort
