// SPDX-License-Identifier: Apache-2.0
#include "cohort/update_rules/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "cohort/base/cpu.h"
#include "cohort/base/error.h"
#include "cohort/base/sanitizers.h"

namespace cohort::update_rules {
namespace {

template <class T>
std::vector<T> random_values(std::size_t n, unsigned seed, bool positive = false) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<T> values(n);
  for (T& v : values) {
    v = static_cast<T>(normal(random));
    if (positive) v = std::fabs(v);
  }
  return values;
}

template <class T>
struct State {
  std::vector<T> param, s0, s1, s2;
  explicit State(std::size_t n)
      : param(random_values<T>(n, 1)),
        s0(random_values<T>(n, 2, true)),
        s1(random_values<T>(n, 3, true)),
        s2(random_values<T>(n, 4, true)) {}
  Target<T> target() { return {.param = param.data(), .slots = {s0.data(), s1.data(), s2.data()}}; }
  bool operator==(const State& other) const {
    auto same = [](const std::vector<T>& a, const std::vector<T>& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
    };
    return same(param, other.param) && same(s0, other.s0) && same(s1, other.s1) &&
           same(s2, other.s2);
  }
};

const std::vector<Rule>& every_rule() {
  static const std::vector<Rule> rules = {
      SgdStep{},
      MomentumStep{},
      MomentumStep{.nesterov = true},
      AdamStep{},
      AdamStep{.amsgrad = true},
      RmspropStep{},
      RmspropStep{.momentum = 0.9},
      RmspropStep{.epsilon = 20, .centered = true},
      RmspropStep{.momentum = 0.5, .epsilon = 20, .centered = true},
      AdagradStep{},
      AdadeltaStep{},
      AdamaxStep{},
      NadamStep{.momentum_scale = 0.01, .gradient_scale = 0.02},
      FtrlStep{},
      FtrlStep{.learning_rate_power = -0.7, .l1 = 0.1},
      LionStep{}};
  return rules;
}

class Update : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const auto isa = static_cast<cohort::internal::base::Isa>(GetParam());
    if (isa > cohort::internal::base::best_isa())
      GTEST_SKIP() << "this processor lacks the instruction set";
    cohort::internal::base::use_isa(isa);
  }
  void TearDown() override { cohort::internal::base::use_isa(cohort::internal::base::best_isa()); }
};

template <class T>
void expect_splits_agree(std::size_t sources, const UpdateOptions& options) {
  constexpr std::size_t kSize = 7001;
  std::vector<std::vector<T>> gradients;
  std::vector<const T*> pointers;
  for (std::size_t s = 0; s < sources; ++s) {
    gradients.push_back(random_values<T>(kSize, 10 + static_cast<unsigned>(s)));
    pointers.push_back(gradients.back().data());
  }
  for (const Rule& rule : every_rule()) {
    State<T> whole(kSize);
    fused_update<T>(rule, whole.target(), pointers, 0, kSize, options);
    for (std::vector<std::size_t> cuts :
         {std::vector<std::size_t>{16, 3504, 6992}, {1, 2, 17, 1024, 1040, 3333, 7000}}) {
      State<T> parts(kSize);
      std::size_t begin = 0;
      cuts.push_back(kSize);
      for (std::size_t cut : cuts) {
        fused_update<T>(rule, parts.target(), pointers, begin, cut, options);
        begin = cut;
      }
      EXPECT_TRUE(whole == parts) << "rule " << rule.index() << ", sources " << sources;
    }
  }
}

TEST_P(Update, AnySplitGivesTheSameBits) {
  for (std::size_t sources : {1, 2, 3, 8}) {
    if (COHORT_UNDER_SANITIZER != 0 && sources % 2 == 0) continue;
    expect_splits_agree<float>(sources, {});
    expect_splits_agree<double>(sources, {});
    expect_splits_agree<float>(sources,
                               {.gradient_scale = 0.3, .clip_value = 0.5, .weight_decay = 1e-3});
  }
}

TEST_P(Update, WritesElsewhereTheBitsOfAnUpdateInPlace) {
  constexpr std::size_t kSize = 3001;
  const auto a = random_values<float>(kSize, 10), b = random_values<float>(kSize, 11);
  const float* sources[] = {a.data(), b.data()};
  for (const Rule& rule : every_rule()) {
    const State<float> before(kSize);
    State<float> read(kSize), in_place(kSize), beside(kSize);
    std::fill(beside.param.begin(), beside.param.end(), -7.0F);
    const auto used = [&](std::size_t slot, std::vector<float>& of) {
      if (uses_slot(rule, slot)) std::fill(of.begin(), of.end(), -7.0F);
    };
    used(0, beside.s0);
    used(1, beside.s1);
    used(2, beside.s2);
    Target<float> target = beside.target();
    target.from_param = read.param.data();
    target.from_slots = {read.s0.data(), read.s1.data(), read.s2.data()};
    fused_update<float>(rule, target, sources, 0, 1500, {.weight_decay = 1e-3});
    fused_update<float>(rule, target, sources, 1500, kSize, {.weight_decay = 1e-3});
    fused_update<float>(rule, in_place.target(), sources, 0, kSize, {.weight_decay = 1e-3});
    EXPECT_TRUE(beside == in_place) << rule.index();
    EXPECT_TRUE(read == before) << rule.index();
  }
  State<float> state(16);
  Target<float> target = state.target();
  target.from_param = state.param.data();
  EXPECT_THROW(fused_update<float>(AdamStep{}, target, sources, 0, 16), cohort::InvalidArgument);
}

TEST_P(Update, SourcesAddInTheirOrder) {
  constexpr std::size_t kSize = 2500;
  const auto a = random_values<float>(kSize, 1), b = random_values<float>(kSize, 2),
             c = random_values<float>(kSize, 3);
  std::vector<float> expected(kSize);
  for (std::size_t i = 0; i < kSize; ++i) expected[i] = (a[i] + b[i]) + c[i];
  const float* sources[] = {a.data(), b.data(), c.data()};
  State<float> fused(kSize), stepwise(kSize);
  fused_update<float>(AdamStep{}, fused.target(), sources, 0, kSize);
  const float* summed[] = {expected.data()};
  fused_update<float>(AdamStep{}, stepwise.target(), summed, 0, kSize);
  EXPECT_TRUE(fused == stepwise);
}

TEST_P(Update, ScalesThenClipsTheSum) {
  std::vector<double> param(40, 0);
  const std::vector<double> a(40, 3), b(40, 5);
  const double* sources[] = {a.data(), b.data()};
  fused_update<double>(SgdStep{.learning_rate = 1}, {.param = param.data()}, sources, 0, 20,
                       {.gradient_scale = 0.5});
  fused_update<double>(SgdStep{.learning_rate = 1}, {.param = param.data()}, sources, 20, 40,
                       {.gradient_scale = 0.5, .clip_value = 1.5});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(param[i], -4);
  for (int i = 20; i < 40; ++i) EXPECT_EQ(param[i], -1.5);
}

TEST_P(Update, NanReachesTheParameters) {
  for (const Rule& rule : every_rule()) {
    State<float> state(33);
    std::vector<float> gradient(33, 1.0f);
    gradient[5] = gradient[32] = std::nanf("");
    const float* sources[] = {gradient.data()};
    fused_update<float>(rule, state.target(), sources, 0, 33, {.clip_value = 2});
    EXPECT_TRUE(std::isnan(state.param[5]) && std::isnan(state.param[32])) << rule.index();
    EXPECT_FALSE(std::isnan(state.param[4]) || std::isnan(state.param[31])) << rule.index();
  }
}

TEST_P(Update, ZeroPaddingStaysZero) {
  for (const Rule& rule : every_rule()) {
    // Ftrl's accumulator starts above zero, as it must.
    std::vector<float> param(16, 0), s0(16, rule.index() == 8 ? 0.1f : 0), s1(16, 0), s2(16, 0);
    const std::vector<float> zeros(16, 0);
    const float* sources[] = {zeros.data(), zeros.data()};
    fused_update<float>(rule, {.param = param.data(), .slots = {s0.data(), s1.data(), s2.data()}},
                        sources, 0, 16, {.weight_decay = 0.1});
    for (float p : param) EXPECT_EQ(p, 0) << rule.index();
  }
}

TEST_P(Update, SquareSumsAreTheSameForAnyNumberOfThreads) {
  constexpr std::size_t kSize = 3 * kSquareSumBlock + 17;
  const auto a = random_values<float>(kSize, 1), b = random_values<float>(kSize, 2);
  const float* sources[] = {a.data(), b.data()};
  std::vector<double> blocks(square_sum_blocks(kSize)), parts(blocks.size());
  block_square_sums<float>(sources, kSize, 0, blocks);
  block_square_sums<float>(sources, kSize, 0, std::span(parts).first(1));
  block_square_sums<float>(sources, kSize, 1, std::span(parts).subspan(1));
  EXPECT_EQ(blocks, parts);
  double total = 0, exact = 0;
  for (double block : blocks) total += block;
  EXPECT_EQ(total, sum_of_squares<float>(sources, 0, kSize));
  for (std::size_t i = 0; i < kSize; ++i) {
    const double g = a[i] + b[i];
    exact += g * g;
  }
  EXPECT_NEAR(total / exact, 1, 1e-12);
  EXPECT_EQ(sum_of_squares<float>(sources, 5, 5), 0);
}

INSTANTIATE_TEST_SUITE_P(Isa, Update, ::testing::Values(0, 1, 2));

TEST(UpdateIsas, AgreeWithinRounding) {
  const auto g = random_values<float>(5000, 9);
  const float* sources[] = {g.data()};
  for (const Rule& rule : every_rule()) {
    cohort::internal::base::use_isa(cohort::internal::base::Isa::kBase);
    State<float> base(5000);
    fused_update<float>(rule, base.target(), sources, 0, 5000);
    cohort::internal::base::use_isa(cohort::internal::base::best_isa());
    State<float> best(5000);
    fused_update<float>(rule, best.target(), sources, 0, 5000);
    for (std::size_t i = 0; i < 5000; ++i) {
      ASSERT_NEAR(base.param[i], best.param[i], 2e-5 * (1 + std::fabs(base.param[i])))
          << rule.index();
    }
  }
}

TEST(UpdateThreads, DisjointRangesAtTheSameTime) {
  constexpr std::size_t kSize = 40000;
  const auto g = random_values<float>(kSize, 9);
  const float* sources[] = {g.data(), g.data()};
  State<float> whole(kSize), shared(kSize);
  fused_update<float>(AdamStep{}, whole.target(), sources, 0, kSize);
  {
    std::vector<std::jthread> threads;
    for (std::size_t part = 0; part < 4; ++part) {
      threads.emplace_back([&, part] {
        fused_update<float>(AdamStep{}, shared.target(), sources, part * kSize / 4,
                            (part + 1) * kSize / 4);
      });
    }
  }
  EXPECT_TRUE(whole == shared);
}

// The rows that are named get what a pass over everything gives them; the others keep their bits.
TEST_P(Update, OfRowsHasTheBitsOfAWholeUpdate) {
  constexpr std::size_t kRows = 50;
  const std::vector<int64_t> rows = {0, 3, 4, 17, 49};
  for (const Rule& rule : every_rule()) {
    for (const std::size_t width : {1, 7, 16, 37}) {
      const UpdateOptions how{.gradient_scale = 0.5, .clip_value = 1, .weight_decay = 0.01};
      const auto some = random_values<float>(rows.size() * width, 6);
      std::vector<float> all(kRows * width);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        std::copy_n(&some[i * width], width, &all[static_cast<std::size_t>(rows[i]) * width]);
      }
      const State<float> before(kRows * width);
      State<float> whole(before), expected(before), by_rows(before);
      const float* const sources[] = {all.data()};
      fused_update<float>(rule, whole.target(), sources, 0, all.size(), how);
      for (const int64_t row : rows) {
        const auto at = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * width);
        const auto n = static_cast<std::ptrdiff_t>(width);
        for (auto part :
             {&State<float>::param, &State<float>::s0, &State<float>::s1, &State<float>::s2}) {
          std::copy_n((whole.*part).begin() + at, n, (expected.*part).begin() + at);
        }
      }
      fused_update_rows<float>(rule, by_rows.target(), some.data(), rows, width, how);
      EXPECT_TRUE(by_rows == expected) << "rule " << rule.index() << ", rows of " << width;
    }
  }
}

TEST(UpdateRows, ZeroGradientsAreIgnoredWhereTheRuleSaysSo) {
  int ignoring = 0;
  for (const Rule& rule : every_rule()) {
    constexpr std::size_t kSize = 100;
    const State<double> before(kSize);
    State<double> after(before);
    const std::vector<double> zero(kSize);
    const double* const sources[] = {zero.data()};
    fused_update<double>(rule, after.target(), sources, 0, kSize);
    EXPECT_EQ(after == before, ignores_zero_gradients(rule)) << "rule " << rule.index();
    ignoring += ignores_zero_gradients(rule) ? 1 : 0;
  }
  EXPECT_EQ(ignoring, 2);
  EXPECT_FALSE(ignores_zero_gradients(AdagradStep{.epsilon = 0}));
}

TEST(UpdateArguments, AreChecked) {
  std::vector<float> p(4), short_slot(3);
  const std::vector<float> g(4), short_gradient(3);
  EXPECT_THROW(fused_update<float>(SgdStep{}, {.param = p.data()}, {}, 0, 4), InvalidArgument);
  EXPECT_THROW(update<float>(SgdStep{}, p, {}, short_gradient), InvalidArgument);
  EXPECT_THROW(update<float>(MomentumStep{}, p, {short_slot}, g), InvalidArgument);
  EXPECT_THROW(update<float>(MomentumStep{}, p, {}, g), InvalidArgument);
  EXPECT_THROW(sum_of_squares<float>({}, 0, 4), InvalidArgument);
}

TEST(ClipScale, FollowsKeras) {
  EXPECT_EQ(global_norm_clip_scale(0, 2), 1);
  EXPECT_EQ(global_norm_clip_scale(1, 2), 1);
  EXPECT_EQ(global_norm_clip_scale(8, 2), 0.25);
  EXPECT_TRUE(std::isnan(global_norm_clip_scale(INFINITY, 2)));
  EXPECT_EQ(norm_clip_scale(8, 2), 0.25);
  EXPECT_EQ(norm_clip_scale(0, 2), 1);
  EXPECT_TRUE(std::isnan(norm_clip_scale(NAN, 2)));
}

}  // namespace
}  // namespace cohort::update_rules
