// SPDX-License-Identifier: Apache-2.0
//
// Numbers that make no training: who is told them says so, before a step makes weights NaN.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "cohort/base/error.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/optimizers/whole_variable.h"

namespace cohort::keras {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kEndless = std::numeric_limits<double>::infinity();

template <class F>
std::string refused(F f) {
  try {
    f();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "taken";
}

#define REFUSES(text, ...) EXPECT_EQ(refused([] { __VA_ARGS__; }), text)

TEST(OptionRanges, NameOptionRangeAndNumber) {
  REFUSES("[adam] expected beta_1 in [0, 1), got 1", Adam({.beta_1 = 1}));
  REFUSES("[adam] expected beta_2 in [0, 1), got -0.5", Adam({.beta_2 = -0.5}));
  REFUSES("[adam] expected epsilon of 0 or more and finite, got nan", Adam({.epsilon = kNoNumber}));
  REFUSES("[adam] expected weight_decay of 0 or more and finite, got inf",
          Adam({.weight_decay = kEndless}));
  REFUSES("[adam] expected clipnorm of 0 or more and finite, got nan",
          Adam({.clipnorm = kNoNumber}));
  REFUSES("[adam] expected clipvalue of 0 or more and finite, got inf",
          Adam({.clipvalue = kEndless}));
  REFUSES("[adam] expected global_clipnorm of 0 or more and finite, got -1",
          Adam({.global_clipnorm = -1}));
  REFUSES("[mine] expected beta_1 in [0, 1), got nan",
          AdamW({.beta_1 = kNoNumber, .name = "mine"}));
  REFUSES("[sgd] expected momentum in [0, 1], got nan", SGD({.momentum = kNoNumber}));
}

TEST(OptionRanges, HoldForEveryRule) {
  REFUSES("[rmsprop] expected rho in [0, 1], got 1.5", RMSprop({.rho = 1.5}));
  REFUSES("[rmsprop] expected momentum in [0, 1], got -1", RMSprop({.momentum = -1}));
  REFUSES("[rmsprop] expected epsilon of 0 or more and finite, got -1", RMSprop({.epsilon = -1}));
  REFUSES("[adagrad] expected initial_accumulator_value of 0 or more and finite, got -1",
          Adagrad({.initial_accumulator_value = -1}));
  REFUSES("[adagrad] expected epsilon of 0 or more and finite, got nan",
          Adagrad({.epsilon = kNoNumber}));
  REFUSES("[adadelta] expected rho in [0, 1], got nan", Adadelta({.rho = kNoNumber}));
  REFUSES("[adadelta] expected epsilon of 0 or more and finite, got inf",
          Adadelta({.epsilon = kEndless}));
  REFUSES("[adamax] expected beta_1 in [0, 1), got 1", Adamax({.beta_1 = 1}));
  REFUSES("[adamax] expected beta_2 in [0, 1], got 2", Adamax({.beta_2 = 2}));
  REFUSES("[nadam] expected beta_1 in [0, 1], got 2", Nadam({.beta_1 = 2}));
  REFUSES("[nadam] expected beta_2 in [0, 1), got 1", Nadam({.beta_2 = 1}));
  REFUSES("[ftrl] expected learning_rate_power of 0 or less and finite, got nan",
          Ftrl({.learning_rate_power = kNoNumber}));
  REFUSES("[ftrl] expected l1_regularization_strength of 0 or more and finite, got -1",
          Ftrl({.l1_regularization_strength = -1}));
  REFUSES("[ftrl] expected beta of 0 or more and finite, got nan", Ftrl({.beta = kNoNumber}));
  REFUSES("[lion] expected beta_1 in (0, 1], got 0", Lion({.beta_1 = 0}));
  REFUSES("[lion] expected beta_2 in [0, 1], got -1", Lion({.beta_2 = -1}));
  REFUSES("[lamb] expected beta_1 in [0, 1), got 1", Lamb({.beta_1 = 1}));
  REFUSES("[lamb] expected weight_decay of 0 or more and finite, got nan",
          Lamb({.weight_decay = kNoNumber}));
  REFUSES("[adafactor] expected beta_2_decay of 0 or less and finite, got 0.5",
          Adafactor({.beta_2_decay = 0.5}));
  REFUSES("[adafactor] expected clip_threshold above 0 and finite, got 0",
          Adafactor({.clip_threshold = 0}));
  REFUSES("[muon] expected momentum in [0, 1], got 2", Muon({.momentum = 2}));
  REFUSES("[muon] expected adam_beta_2 in [0, 1), got 1", Muon({.adam_beta_2 = 1}));
  REFUSES("[muon] expected adam_weight_decay of 0 or more and finite, got -1",
          Muon({.adam_weight_decay = -1}));
}

TEST(OptionRanges, HoldForSchedules) {
  REFUSES("[exponential_decay] expected decay_rate of 0 or more and finite, got -1",
          ExponentialDecay(0.1, 10, -1));
  REFUSES("[exponential_decay] expected initial_learning_rate of 0 or more and finite, got nan",
          ExponentialDecay(kNoNumber, 10, 1));
  REFUSES("[inverse_time_decay] expected decay_rate of 0 or more and finite, got inf",
          InverseTimeDecay(0.1, 10, kEndless));
  REFUSES("[piecewise_constant_decay] expected values of 0 or more and finite, got -1",
          PiecewiseConstantDecay({1}, {0.1, -1}));
  REFUSES("[polynomial_decay] expected end_learning_rate of 0 or more and finite, got -1",
          PolynomialDecay(0.1, 10, {.end_learning_rate = -1}));
  REFUSES("[polynomial_decay] expected power of 0 or more and finite, got nan",
          PolynomialDecay(0.1, 10, {.power = kNoNumber}));
  REFUSES("[cosine_decay] expected alpha of 0 or more and finite, got -1",
          CosineDecay(0.1, 10, {.alpha = -1}));
  REFUSES("[cosine_decay] expected warmup_target of 0 or more and finite, got nan",
          CosineDecay(0.1, 10, {.warmup_target = kNoNumber, .warmup_steps = 3}));
  REFUSES("[cosine_decay_restarts] expected m_mul of 0 or more and finite, got nan",
          CosineDecayRestarts(0.1, 10, {.m_mul = kNoNumber}));
  REFUSES("[cosine_decay_restarts] expected t_mul of 1 or more and finite, got inf",
          CosineDecayRestarts(0.1, 10, {.t_mul = kEndless}));
}

// A restart begins with the whole rate, whatever its logarithm is rounded to.
TEST(CosineDecayRestarts, BeginEachCycleWithTheWholeRate) {
  for (const int64_t t : {3, 10}) {
    const LearningRate rate = CosineDecayRestarts(0.5, 1, {.t_mul = static_cast<double>(t)});
    int64_t step = 0;
    for (int64_t cycle = 1; step < 2'000'000; step += cycle, cycle *= t) {
      EXPECT_NEAR(rate(step), 0.5, 1e-9) << t << " at step " << step;
    }
  }
}

// What Keras trains with, and finitely.
TEST(OptionRanges, HaveTheirEnds) {
  EXPECT_NO_THROW(SGD({.learning_rate = 0, .momentum = 1, .weight_decay = 0}));
  EXPECT_NO_THROW(Adam({.beta_1 = 0, .beta_2 = 0, .epsilon = 0}));
  EXPECT_NO_THROW(RMSprop({.rho = 1, .momentum = 1, .epsilon = 0}));
  EXPECT_NO_THROW(Adagrad({.initial_accumulator_value = 0, .epsilon = 0}));
  EXPECT_NO_THROW(Adadelta({.rho = 1, .epsilon = 0}));
  EXPECT_NO_THROW(Adamax({.beta_1 = 0, .beta_2 = 1}));
  EXPECT_NO_THROW(Nadam({.beta_1 = 1, .beta_2 = 0}));
  EXPECT_NO_THROW(Lion({.beta_1 = 1, .beta_2 = 1}));
  EXPECT_NO_THROW(Ftrl({.learning_rate_power = 0, .initial_accumulator_value = 0}));
  EXPECT_NO_THROW(Muon({.momentum = 1, .rms_rate = std::nullopt}));
  EXPECT_NO_THROW(ExponentialDecay(1e-7, 10, 1.5));  // a rate that grows, to find a good one
  EXPECT_NO_THROW(CosineDecay(0.1, 10, {.alpha = 2}));
}

}  // namespace
}  // namespace cohort::keras
