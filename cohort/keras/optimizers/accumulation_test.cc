// SPDX-License-Identifier: Apache-2.0
//
// gradient_accumulation_steps, as Keras 3 defines it: of n calls the n-th applies the mean.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <latch>

#include "cohort/base/error.h"
#include "cohort/keras/optimizers/internal/test_world.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/testing/deadline.h"

namespace cohort::keras {
namespace {

constexpr int kEvery = 4;

double mean_gradient(int update, int64_t i) {
  double sum = 0;
  for (int t = 0; t < kEvery; ++t) sum += World::gradient(update * kEvery + t, i);
  return sum / kEvery;
}

// The weights after kSteps calls: kSteps / kEvery updates.
Numbers expected_updates(const Formula& formula, double global_clip = INFINITY) {
  Numbers all;
  for (const int64_t n : {7, 3}) {
    for (int64_t i = 0; i < n; ++i) {
      double w = (static_cast<double>(i) - 2.5) * 0.3;
      Numbers slots(3);
      for (int t = 0; t < kSteps / kEvery; ++t) {
        double squares = 0;
        for (const int64_t size : {7, 3}) {
          for (int64_t j = 0; j < size; ++j) squares += std::pow(mean_gradient(t, j), 2);
        }
        const double clip = std::min(1.0, global_clip / std::sqrt(squares));
        w = formula(w, mean_gradient(t, i) * clip, slots, t);
      }
      all.push_back(w);
    }
  }
  return all;
}

// Formulas and counts in all worlds.
void check_updates(const std::function<Optimizer()>& make, const Numbers& want) {
  for (const auto& world : all_worlds()) {
    const Optimizer optimizer = make();
    world->train(optimizer);
    for (int r = 0; r < world->group.size(); ++r) expect_close(world->weights(r), want);
    EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), kSteps / kEvery);
    EXPECT_EQ(optimizer.variables()[0].value().item<int64_t>(), kSteps);
  }
}

struct SlowDescent : OptimizerBase {
  SlowDescent() : OptimizerBase(0.1, "slow", {.gradient_accumulation_steps = kEvery}) {}
  void update(const Variable& variable, const Gradient& gradient) override {
    variable.assign_sub(gradient.dense() * (learning_rate() / static_cast<double>(step() + 1)));
  }
};

TEST(Accumulation, AppliesTheMeanOfEachRound) {
  check_updates([] { return SGD({.learning_rate = 0.1, .gradient_accumulation_steps = kEvery}); },
                expected_updates(sgd(0.1)));
  check_updates([] { return Adam({.learning_rate = 0.05, .gradient_accumulation_steps = kEvery}); },
                expected_updates(adam(0.05)));
  check_updates(
      [] {
        return SGD(
            {.learning_rate = 0.1, .global_clipnorm = 0.7, .gradient_accumulation_steps = kEvery});
      },
      expected_updates(sgd(0.1), 0.7));
  check_updates(
      [] { return Optimizer(std::make_shared<SlowDescent>()); },
      expected_updates([](double w, double g, Numbers&, int t) { return w - 0.1 / (t + 1) * g; }));
  EXPECT_THROW(SGD({.gradient_accumulation_steps = 0}), InvalidArgument);
}

TEST(Accumulation, SchedulesCountCallsAsInKeras) {
  const auto rate = [](int64_t call) { return 0.1 / static_cast<double>(1 + call); };
  check_updates([=] { return SGD({.learning_rate = rate, .gradient_accumulation_steps = kEvery}); },
                expected_updates([=](double w, double g, Numbers&, int t) {
                  return w - rate(t * kEvery + kEvery - 1) * g;
                }));
}

TEST(Accumulation, CallsInBetweenWriteAndMeetNothing) {
  World world(2);
  const Optimizer optimizer = Adam({.gradient_accumulation_steps = 3});
  optimizer.build(world.variables);
  const Numbers before = world.weights();
  std::latch accumulated(1);
  testing::run_with_deadline(std::chrono::seconds(60), [&] {
    world.group.run([&](int r) {
      // Replica 1 does not come before replica 0 has made its two calls.
      if (r == 1) accumulated.wait();
      for (int t = 0; t < 2; ++t) optimizer.apply_gradients(world.gradients(t, r));
      if (r == 0) accumulated.count_down();
    });
  });
  for (int r = 0; r < 2; ++r) EXPECT_EQ(world.weights(r), before);
  EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 0);
  world.group.run([&](int r) { optimizer.apply_gradients(world.gradients(2, r)); });
  EXPECT_NE(world.weights(), before);
  EXPECT_EQ(world.weights(0), world.weights(1));
}

// In Keras they are applied behind every call.
TEST(Accumulation, ConstraintsHoldInCallsInBetween) {
  for (const auto placement : {ParameterPlacement::kMirrored, ParameterPlacement::kCentral}) {
    World world(2, UpdateSchedule::kSharded, kFloat64, placement);
    const VariableCreatorScope scope(world.creator);
    const auto capped = [](const Tensor& w) { return w.clamp_max(0.5); };
    world.variables[0] = Variable(World::start(7), {.name = "layer/c", .constraint = capped});
    const int copies = world.variables[0].impl().copies();
    const auto of_first = [&](int r) {
      return to_vector<double>(world.variables[0].impl().leaf_of(r).tensor);
    };
    const Optimizer optimizer = SGD({.learning_rate = 0.1, .gradient_accumulation_steps = 3});
    optimizer.build(world.variables);
    const auto before = of_first(0);
    world.group.run([&](int r) { optimizer.apply_gradients(world.gradients(0, r)); });
    for (int r = 0; r < copies; ++r) {
      for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(of_first(r)[i], std::min(0.5, before[i]));
    }
  }
}

TEST(Accumulation, AFailedRunTakesConstraintsBack) {
  for (const int replicas : {1, 2}) {
    const Strategy strategy = cohort::testing::strategy_of(replicas);
    const auto scope = strategy.scope();
    const Variable v(ones({2}), {.constraint = [](const Tensor& w) { return w.clamp_max(0.5); }});
    const Optimizer optimizer = SGD({.learning_rate = 0.1, .gradient_accumulation_steps = 3});
    optimizer.build(std::vector{v});
    const auto run = [&](bool fails) {
      strategy.run([&] {
        optimizer.apply_gradients({{ones({2}), v}});
        if (fails && current_replica() <= 0) throw InvalidArgument("behind it");
      });
    };
    EXPECT_THROW(run(true), InvalidArgument);
    for (const Variable& copy : v.components()) EXPECT_TRUE(copy.value().equal(ones({2})));
    run(false);
    for (const Variable& copy : v.components()) EXPECT_TRUE(copy.value().equal(full({2}, 0.5)));
  }
}

// a: calls 0 and 2; b: all but the last; so both are missing somewhere, and b in the update call.
TEST(Accumulation, CallsWithoutAGradientCountAsZero) {
  for (const int replicas : {1, 2}) {
    World world(replicas);
    const Optimizer optimizer = SGD({.learning_rate = 1.0, .gradient_accumulation_steps = kEvery});
    optimizer.build(world.variables);
    const Numbers before = world.weights();
    world.group.run([&](int r) {
      for (int t = 0; t < kEvery; ++t) {
        Gradients all = world.gradients(t, r);
        if (t % 2 == 1) all[0].gradient = {};
        if (t == kEvery - 1) all[1].gradient = {};
        if (t == kEvery - 1) all[0].gradient = zeros({7}, kFloat64);
        optimizer.apply_gradients(all);
      }
    });
    for (int r = 0; r < replicas; ++r) {
      const Numbers after = world.weights(r);
      for (std::size_t i = 0; i < 10; ++i) {
        double sum = 0;
        for (int t = 0; t < kEvery - 1; ++t) {
          const bool given = i >= 7 || t % 2 == 0;
          if (given) sum += World::gradient(t, static_cast<int64_t>(i < 7 ? i : i - 7));
        }
        EXPECT_NEAR(after[i], before[i] - sum / kEvery, 1e-12) << "element " << i;
      }
    }
  }
}

TEST(Accumulation, AFailedRunDropsTheRound) {
  for (const UpdateSchedule schedule : {UpdateSchedule::kSharded, UpdateSchedule::kPull}) {
    World world(2, schedule);
    const Optimizer optimizer = Adam({.gradient_accumulation_steps = kEvery});
    world.train(optimizer, kEvery);
    for (const int failing : {0, 1}) {
      EXPECT_THROW(world.group.run([&](int r) {
        for (int t = 0; t < kEvery - 1; ++t) {
          if (r == failing && t == 1) throw InvalidArgument("not a number");
          optimizer.apply_gradients(world.gradients(100 + t, r));
        }
      }),
                   InvalidArgument);
    }
    World other(2, schedule);
    const Optimizer same = Adam({.gradient_accumulation_steps = kEvery});
    other.train(same, kEvery);
    testing::run_with_deadline(std::chrono::seconds(60), [&] {
      world.train(optimizer, 2 * kEvery);
      other.train(same, 2 * kEvery);
    });
    for (int r = 0; r < 2; ++r) EXPECT_EQ(world.weights(r), other.weights(r));
    EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 3);
  }
}

TEST(Accumulation, SumsAreVariables) {
  World world(2), copy(2);
  const Optimizer optimizer = SGD({.gradient_accumulation_steps = kEvery});
  const Optimizer second = SGD({.gradient_accumulation_steps = kEvery});
  second.build(copy.variables);
  world.train(optimizer, kEvery + 2);
  const auto state = optimizer.variables();
  ASSERT_EQ(state.size(), 3U);
  EXPECT_EQ(state[1].name(), "sgd/layer_a_gradient_accumulator");
  EXPECT_NEAR(state[1].value()[5].item<double>(), World::gradient(4, 5) + World::gradient(5, 5),
              1e-12);
  for (std::size_t v = 0; v < 2; ++v) copy.variables[v].assign(world.variables[v].value());
  for (std::size_t i = 0; i < 3; ++i) second.variables()[i].assign(state[i].value().clone());
  world.train(optimizer, 2);
  copy.train(second, 2);
  for (int r = 0; r < 2; ++r) expect_close(copy.weights(r), world.weights(0), 1e-15);
  EXPECT_EQ(optimizer.variables()[1].value().abs().sum().item<double>(), 0);
  optimizer.iterations().assign(10);
  EXPECT_EQ(optimizer.variables()[0].value().item<int64_t>(), 10 * kEvery);
}

// What is restored in the middle of a round is the round that was saved, whatever failed between.
TEST(Accumulation, ARoundThatIsRestoredGoesOnAfterAFailedRun) {
  for (const int replicas : {1, 2}) {
    World world(replicas), other(replicas);
    const Optimizer optimizer = SGD({.gradient_accumulation_steps = kEvery});
    const Optimizer never_failed = SGD({.gradient_accumulation_steps = kEvery});
    std::vector<Variable> kept = world.variables;
    world.train(optimizer, kEvery + 2);
    other.train(never_failed, kEvery + 2);
    for (const Variable& v : optimizer.variables()) kept.push_back(v);
    std::vector<Tensor> saved;
    for (const Variable& v : kept) saved.push_back(v.value().clone());
    EXPECT_THROW(world.group.run([&](int r) {
      for (int t = 0; t <= r; ++t) optimizer.apply_gradients(world.gradients(100 + t, r));
      throw InvalidArgument("not a number");
    }),
                 InvalidArgument);
    for (std::size_t i = 0; i < kept.size(); ++i) kept[i].assign(saved[i]);
    world.train(optimizer, 2);
    other.train(never_failed, 2);
    for (int r = 0; r < replicas; ++r) expect_close(world.weights(r), other.weights(0), 1e-15);
    EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 2);
  }
}

// Keras's formula, over updates: the first average is the variable.
Numbers expected_averages(int every, Numbers* weights) {
  Numbers averages;
  for (const int64_t n : {7, 3}) {
    for (int64_t i = 0; i < n; ++i) {
      double w = (static_cast<double>(i) - 2.5) * 0.3, mean = 0;
      for (int t = 0; t < kSteps; ++t) {
        w -= 0.1 * World::gradient(t, i);
        const double momentum = t == 0 ? 0 : 0.8;
        mean = momentum * mean + (1 - momentum) * w;
        if (every > 0 && (t + 1) % every == 0) w = mean;
      }
      averages.push_back(mean);
      weights->push_back(w);
    }
  }
  return averages;
}

TEST(MovingAverages, FollowKeras) {
  for (const int every : {0, 3}) {
    Numbers weights;
    const Numbers averages = expected_averages(every, &weights);
    for (const auto& world : all_worlds()) {
      SGDOptions options{.learning_rate = 0.1, .use_ema = true, .ema_momentum = 0.8};
      if (every > 0) options.ema_overwrite_frequency = every;
      const Optimizer optimizer = SGD(options);
      world->train(optimizer);
      const int replicas = world->group.size();
      for (int r = 0; r < replicas; ++r) expect_close(world->weights(r), weights);
      EXPECT_EQ(optimizer.variables()[1].name(), "sgd/layer_a_average");
      EXPECT_NEAR(optimizer.variables()[1].value()[2].item<double>(), averages[2], 1e-12);
      optimizer.finalize_variable_values();
      for (int r = 0; r < replicas; ++r) expect_close(world->weights(r), averages);
    }
  }
  EXPECT_THROW(Adam({.use_ema = true, .ema_momentum = 1.5}), InvalidArgument);
  EXPECT_THROW(Adam({.use_ema = true, .ema_overwrite_frequency = 0}), InvalidArgument);
}

// A rule that writes its gradient.
struct InPlaceDescent : OptimizerBase {
  void update(const Variable& variable, const Gradient& gradient) override {
    Tensor g = gradient.dense();
    variable.assign_sub(g.mul_(learning_rate()));
  }
};

TEST(Accumulation, GradientsOfTheCallersAreNotTouched) {
  const auto optimizers = {Optimizer(SGD({.gradient_accumulation_steps = 2})),
                           Optimizer(std::make_shared<InPlaceDescent>())};
  for (const Optimizer& optimizer : optimizers) {
    World world(1);
    const Gradients held = world.gradients(0, 0);
    const auto before = to_vector<double>(held[0].gradient.dense());
    for (int t = 0; t < 4; ++t) optimizer.apply_gradients(held);
    EXPECT_EQ(to_vector<double>(held[0].gradient.dense()), before);
  }
}

}  // namespace
}  // namespace cohort::keras
