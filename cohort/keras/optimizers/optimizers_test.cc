// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/optimizers.h"

#include "cohort/keras/optimizers/whole_variable.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/keras/optimizers/internal/test_world.h"

namespace cohort::keras {
namespace {

TEST(SGD, PlainMomentumAndNesterov) {
  check([] { return SGD({.learning_rate = 0.1}); }, expected(sgd(0.1)));
  for (const bool nesterov : {false, true}) {
    check([=] { return SGD({.learning_rate = 0.1, .momentum = 0.9, .nesterov = nesterov}); },
          expected([=](double w, double g, Numbers& s, int) {
            s[0] = s[0] * 0.9 - g * 0.1;
            return nesterov ? w + s[0] * 0.9 - g * 0.1 : w + s[0];
          }));
  }
  EXPECT_THROW(SGD({.momentum = 1.5}), InvalidArgument);
}

TEST(Adam, PlainAndAmsgrad) {
  check([] { return Adam({.learning_rate = 0.05}); }, expected(adam(0.05)));
  check([] { return Adam({.learning_rate = 0.05, .amsgrad = true}); }, expected(adam(0.05, true)));
}

TEST(Adam, WeightDecayAndItsExclusions) {
  check([] { return AdamW({.learning_rate = 0.05}); },
        expected(adam(0.05), 0, {}, [](int, int) { return 0.004 * 0.05; }));
  check(
      [] {
        return AdamW(
            {.learning_rate = 0.05, .weight_decay = 0.1, .exclude_from_weight_decay = {"/b"}});
      },
      expected(adam(0.05), 0, {}, [](int, int v) { return v == 1 ? 0 : 0.1 * 0.05; }));
  check([] { return SGD({.learning_rate = 0.1, .weight_decay = 0.2}); },
        expected(sgd(0.1), 0, {}, [](int, int) { return 0.2 * 0.1; }));
}

TEST(RMSprop, AllFour) {
  for (const bool centered : {false, true}) {
    for (const double momentum : {0.0, 0.8}) {
      check(
          [=] {
            return RMSprop({.learning_rate = 0.02, .momentum = momentum, .centered = centered});
          },
          expected([=](double w, double g, Numbers& s, int) {
            s[0] = 0.9 * s[0] + 0.1 * g * g;
            double denominator = s[0] + 1e-7;
            if (centered) {
              s[1] = 0.9 * s[1] + 0.1 * g;
              denominator -= s[1] * s[1];
            }
            const double increment = 0.02 * g / std::sqrt(denominator);
            if (momentum == 0) return w - increment;
            s[2] = momentum * s[2] + increment;
            return w - s[2];
          }));
    }
  }
}

TEST(Muon, DecaysNothingThatIsExcluded) {
  const auto stepped = [](MuonOptions options) {
    const Variable kernel(ones({2, 3}), {.name = "dense/kernel"});
    const Variable bias(ones({3}), {.name = "dense/bias"});
    options.learning_rate = 0.1;
    Muon(options).apply_gradients({{ones({2, 3}), kernel}, {ones({3}), bias}});
    return std::pair(to_vector<float>(kernel.value()), to_vector<float>(bias.value()));
  };
  const auto plain = stepped({.adam_weight_decay = {}, .weight_decay = {}});
  const auto decayed = stepped({.adam_weight_decay = 0.5, .weight_decay = 0.5});
  const auto without_bias = stepped(
      {.adam_weight_decay = 0.5, .weight_decay = 0.5, .exclude_from_weight_decay = {"bias"}});
  const auto without = stepped({.adam_weight_decay = 0.5,
                                .weight_decay = 0.5,
                                .exclude_from_weight_decay = {"bias", "kernel"}});
  EXPECT_NE(decayed, plain);
  EXPECT_EQ(without, plain);
  EXPECT_EQ(without_bias, std::pair(decayed.first, plain.second));
}

TEST(Adagrad, StartsAtATenth) {
  check([] { return Adagrad({.learning_rate = 0.1}); },
        expected(
            [](double w, double g, Numbers& s, int) {
              s[0] += g * g;
              return w - 0.1 * g / std::sqrt(s[0] + 1e-7);
            },
            0.1));
}

TEST(Adadelta, KerasFormula) {
  check([] { return Adadelta({.learning_rate = 0.5, .rho = 0.9}); },
        expected([](double w, double g, Numbers& s, int) {
          s[0] = 0.9 * s[0] + 0.1 * g * g;
          const double delta = std::sqrt(s[1] + 1e-7) * g / std::sqrt(s[0] + 1e-7);
          s[1] = 0.9 * s[1] + 0.1 * delta * delta;
          return w - 0.5 * delta;
        }));
}

TEST(Adamax, KerasFormula) {
  check([] { return Adamax({.learning_rate = 0.05}); },
        expected([](double w, double g, Numbers& s, int t) {
          s[0] = 0.9 * s[0] + 0.1 * g;
          s[1] = std::max(0.999 * s[1], std::fabs(g));
          return w - 0.05 * s[0] / ((1 - std::pow(0.9, t + 1)) * (s[1] + 1e-7));
        }));
}

double nadam_momentum(int step) { return 0.9 * (1 - 0.5 * std::pow(0.96, step)); }

TEST(Nadam, KerasFormula) {
  check([] { return Nadam({.learning_rate = 0.05}); },
        expected([](double w, double g, Numbers& s, int t) {
          double product = 1;
          for (int i = 1; i <= t + 1; ++i) product *= nadam_momentum(i);
          const double u = nadam_momentum(t + 1), next = nadam_momentum(t + 2);
          s[0] = 0.9 * s[0] + 0.1 * g;
          s[1] = 0.999 * s[1] + 0.001 * g * g;
          const double m = next * s[0] / (1 - product * next) + (1 - u) * g / (1 - product);
          const double v = s[1] / (1 - std::pow(0.999, t + 1));
          return w - 0.05 * m / (std::sqrt(v) + 1e-7);
        }),
        1e-11);
}

TEST(Nadam, GoesOnWhereItsIterationsAreSet) {
  World world(1), copy(1);
  const Optimizer optimizer = Nadam({.learning_rate = 0.1});
  const Optimizer second = Nadam({.learning_rate = 0.1});
  world.train(optimizer, 7);
  copy.train(second, 9);  // ahead: its products are of later steps
  for (std::size_t v = 0; v < 2; ++v) copy.variables[v].assign(world.variables[v].value());
  for (std::size_t i = 0; i < 5; ++i) {
    second.variables()[i].assign(optimizer.variables()[i].value().clone());
  }
  world.train(optimizer, 3);
  copy.train(second, 3);
  EXPECT_EQ(copy.weights(), world.weights());
}

TEST(Ftrl, KerasFormula) {
  struct Case {
    double power, l1, l2, shrinkage, beta;
  };
  for (const Case c : {Case{-0.5, 0, 0, 0, 0}, Case{-0.5, 0.1, 0.2, 0.05, 0.3},
                       Case{-0.7, 0.1, 0.2, 0.05, 0.3}, Case{0, 0, 0, 0, 0}}) {
    Numbers want;
    for (int64_t n : {7, 3}) {
      for (int64_t i = 0; i < n; ++i) {
        double w = (static_cast<double>(i) - 2.5) * 0.3, accumulator = 0.2, linear = 0;
        for (int t = 0; t < kSteps; ++t) {
          const double g = World::gradient(t, i);
          const double next = accumulator + g * g;
          const double sigma = (std::pow(next, -c.power) - std::pow(accumulator, -c.power)) / 0.1;
          linear += g + 2 * c.shrinkage * w - sigma * w;
          const double quadratic = std::pow(next, -c.power) / 0.1 + 2 * (c.l2 + c.beta / 0.2);
          w = (std::clamp(linear, -c.l1, c.l1) - linear) / quadratic;
          accumulator = next;
        }
        want.push_back(w);
      }
    }
    check(
        [=] {
          return Ftrl({.learning_rate = 0.1,
                       .learning_rate_power = c.power,
                       .initial_accumulator_value = 0.2,
                       .l1_regularization_strength = c.l1,
                       .l2_regularization_strength = c.l2,
                       .l2_shrinkage_regularization_strength = c.shrinkage,
                       .beta = c.beta});
        },
        want);
  }
  EXPECT_THROW(Ftrl({.learning_rate_power = 0.5}), InvalidArgument);
  EXPECT_THROW(Ftrl({.l2_regularization_strength = -1}), InvalidArgument);
}

TEST(Lion, KerasFormula) {
  check([] { return Lion({.learning_rate = 0.05}); },
        expected([](double w, double g, Numbers& s, int) {
          const double mixed = 0.9 * s[0] + (1 - 0.9) * g;
          s[0] = 0.99 * s[0] + (1 - 0.99) * g;
          return w - 0.05 * (mixed > 0 ? 1 : (mixed < 0 ? -1 : 0));
        }));
  EXPECT_THROW(Lion({.beta_1 = 0}), InvalidArgument);
}

TEST(Clipping, ActsOnTheSumOverReplicas) {
  check([] { return SGD({.learning_rate = 0.1, .clipvalue = 0.5}); },
        expected(sgd(0.1), 0, {.value = 0.5}));
  check([] { return SGD({.learning_rate = 0.1, .clipnorm = 1.5}); },
        expected(sgd(0.1), 0, {.norm = 1.5}));
  check([] { return SGD({.learning_rate = 0.1, .global_clipnorm = 2.0}); },
        expected(sgd(0.1), 0, {.global_norm = 2.0}));
  EXPECT_THROW(SGD({.clipnorm = 1, .clipvalue = 1}), InvalidArgument);
  EXPECT_THROW(SGD({.clipnorm = 0, .clipvalue = 1}), InvalidArgument);
}

TEST(Clipping, OfZeroDoesNothing) {
  check([] { return SGD({.learning_rate = 0.1, .clipvalue = 0}); }, expected(sgd(0.1)));
  check([] { return SGD({.learning_rate = 0.1, .clipnorm = 0}); }, expected(sgd(0.1)));
  check([] { return SGD({.learning_rate = 0.1, .global_clipnorm = 0}); }, expected(sgd(0.1)));
  EXPECT_EQ(SGD({.clipnorm = 0}).get_config().at("clipnorm").number(), 0);
  const auto step = [](const Optimizer& optimizer) {
    Variable w(from_vector<float>({1, 2}, {2}));
    optimizer.apply_gradients({{from_vector<float>({3, 4}, {2}), w}});
    return w.value().detach().clone();
  };
  const Tensor free = step(Lamb({.learning_rate = 0.1}));
  EXPECT_TRUE(step(Lamb({.learning_rate = 0.1, .clipnorm = 0})).equal(free));
  EXPECT_TRUE(step(Lamb({.learning_rate = 0.1, .clipvalue = 0})).equal(free));
  EXPECT_TRUE(step(Lamb({.learning_rate = 0.1, .global_clipnorm = 0})).equal(free));
}

TEST(Schedules, SeeTheIterationBeforeTheStep) {
  const auto rate = [](int64_t step) { return 0.1 / static_cast<double>(1 + step); };
  check([=] { return SGD({.learning_rate = rate}); },
        expected([=](double w, double g, Numbers&, int t) { return w - rate(t) * g; }));
  World world(1);
  const Optimizer optimizer = SGD({.learning_rate = rate});
  EXPECT_EQ(optimizer.learning_rate(), 0.1);
  world.train(optimizer, 3);
  EXPECT_EQ(optimizer.learning_rate(), 0.1 / 4);
  EXPECT_THROW(optimizer.set_learning_rate(1), FailedPrecondition);
}

TEST(LearningRate, CanBeSetBetweenSteps) {
  World world(2);
  const Optimizer optimizer = SGD({.learning_rate = 0.5});
  world.train(optimizer, 1);
  optimizer.set_learning_rate(0);
  const Numbers before = world.weights();
  world.train(optimizer, 3);
  EXPECT_EQ(world.weights(), before);
  EXPECT_EQ(optimizer.learning_rate(), 0);
}

TEST(Schedule, BothGiveTheSameBitsInFloat32) {
  for (const auto& make : std::vector<std::function<Optimizer()>>{
           [] { return Adam({.global_clipnorm = 1.0}); }, [] { return SGD({.momentum = 0.9}); },
           [] { return RMSprop({.clipnorm = 0.5}); }, [] { return Nadam(); }, [] { return Lion(); },
           [] { return Adadelta({.global_clipnorm = 0.1, .gradient_accumulation_steps = 3}); },
           [] { return Adamax({.gradient_accumulation_steps = 2}); }, [] { return Ftrl(); }}) {
    World sharded(2, UpdateSchedule::kSharded, kFloat32);
    World pull(2, UpdateSchedule::kPull, kFloat32);
    World central(2, UpdateSchedule::kPull, kFloat32, ParameterPlacement::kCentral);
    sharded.train(make());
    pull.train(make());
    central.train(make());
    EXPECT_EQ(central.weights(0), pull.weights(0));
    EXPECT_EQ(sharded.weights(0), pull.weights(0));
    EXPECT_EQ(sharded.weights(1), pull.weights(0));
    EXPECT_EQ(pull.weights(1), pull.weights(0));
  }
}

TEST(Names, KerasDefaults) {
  EXPECT_EQ(Optimizer("adam").learning_rate(), 0.001);
  EXPECT_EQ(Optimizer("SGD").learning_rate(), 0.01);
  EXPECT_EQ(Optimizer("rmsprop").name(), "rmsprop");
  EXPECT_EQ(Optimizer("adagrad").learning_rate(), 0.001);
  EXPECT_EQ(Optimizer("adamw").name(), "adamw");
  for (const char* name : {"adadelta", "adamax", "nadam", "ftrl", "lion"}) {
    EXPECT_EQ(Optimizer(name).name(), name);
    EXPECT_EQ(Optimizer(name).learning_rate(), 0.001);
  }
  EXPECT_EQ(Optimizer("Ftrl").name(), "ftrl");
  EXPECT_THROW(Optimizer("adan"), InvalidArgument);
}

}  // namespace
}  // namespace cohort::keras
