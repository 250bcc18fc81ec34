// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/error.h"

namespace cohort::keras {
namespace {

TEST(LearningRate, ConstantAndCallable) {
  const LearningRate constant = 0.1;
  EXPECT_FALSE(constant.is_schedule());
  EXPECT_EQ(constant(7), 0.1);
  const LearningRate own = [](int64_t step) { return 1.0 / static_cast<double>(step + 1); };
  EXPECT_TRUE(own.is_schedule());
  EXPECT_EQ(own(3), 0.25);
}

TEST(LearningRate, Exponential) {
  const LearningRate smooth = ExponentialDecay(0.1, 10, 0.96);
  EXPECT_DOUBLE_EQ(smooth(0), 0.1);
  EXPECT_DOUBLE_EQ(smooth(5), 0.1 * std::sqrt(0.96));
  const LearningRate stairs = ExponentialDecay(0.1, 10, 0.96, {.staircase = true});
  EXPECT_DOUBLE_EQ(stairs(9), 0.1);
  EXPECT_DOUBLE_EQ(stairs(25), 0.1 * 0.96 * 0.96);
  EXPECT_THROW(ExponentialDecay(0.1, 0, 0.9), InvalidArgument);
}

TEST(LearningRate, InverseTime) {
  EXPECT_DOUBLE_EQ(InverseTimeDecay(0.1, 4, 0.5)(2), 0.1 / 1.25);
  EXPECT_DOUBLE_EQ(InverseTimeDecay(0.1, 4, 0.5, {.staircase = true})(7), 0.1 / 1.5);
}

TEST(LearningRate, PiecewiseConstant) {
  const LearningRate rate = PiecewiseConstantDecay({100, 110}, {1, 0.5, 0.1});
  EXPECT_EQ(rate(0), 1);
  EXPECT_EQ(rate(100), 1);
  EXPECT_EQ(rate(101), 0.5);
  EXPECT_EQ(rate(110), 0.5);
  EXPECT_EQ(rate(111), 0.1);
  EXPECT_THROW(PiecewiseConstantDecay({1}, {1}), InvalidArgument);
  EXPECT_THROW(PiecewiseConstantDecay({2, 1}, {1, 2, 3}), InvalidArgument);
}

TEST(LearningRate, Polynomial) {
  const LearningRate root = PolynomialDecay(0.1, 10, {.end_learning_rate = 0.01, .power = 0.5});
  EXPECT_DOUBLE_EQ(root(0), 0.1);
  EXPECT_DOUBLE_EQ(root(5), 0.09 * std::sqrt(0.5) + 0.01);
  EXPECT_DOUBLE_EQ(root(10), 0.01);
  EXPECT_DOUBLE_EQ(root(50), 0.01);
  const LearningRate cycle = PolynomialDecay(0.1, 10, {.end_learning_rate = 0.01, .cycle = true});
  EXPECT_DOUBLE_EQ(cycle(0), 0.1);
  EXPECT_DOUBLE_EQ(cycle(15), 0.09 * 0.25 + 0.01);
}

TEST(LearningRate, Cosine) {
  const LearningRate rate = CosineDecay(0.1, 100, {.alpha = 0.1});
  EXPECT_DOUBLE_EQ(rate(0), 0.1);
  EXPECT_DOUBLE_EQ(rate(50), 0.1 * (0.9 * 0.5 + 0.1));
  EXPECT_NEAR(rate(100), 0.01, 1e-15);
  EXPECT_NEAR(rate(1000), 0.01, 1e-15);
  const LearningRate warm = CosineDecay(0.0, 100, {.warmup_target = 0.2, .warmup_steps = 10});
  EXPECT_DOUBLE_EQ(warm(0), 0.0);
  EXPECT_DOUBLE_EQ(warm(5), 0.1);
  EXPECT_DOUBLE_EQ(warm(10), 0.2);
  EXPECT_DOUBLE_EQ(warm(60), 0.1);
  EXPECT_NEAR(warm(110), 0.0, 1e-15);
  EXPECT_THROW(CosineDecay(0.1, 10, {.warmup_target = 0.2}), InvalidArgument);
}

}  // namespace
}  // namespace cohort::keras
