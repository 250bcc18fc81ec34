// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>

#include "cohort/base/error.h"
#include "cohort/keras/optimizers/internal/test_world.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::testing::expect_error;

struct OwnMomentum : OptimizerBase {
  OwnMomentum() : OptimizerBase(0.1, "own") {}
  void on_build(std::span<const Variable> variables) override {
    for (const Variable& v : variables) momentum.push_back(add_slot(v, "momentum"));
  }
  void update(const Variable& variable, const Gradient& gradient) override {
    const Variable& m = momentum[index_of(variable)];
    m.assign(m.value() * 0.9 - gradient.dense() * learning_rate());
    variable.assign_add(m.value());
  }
  std::vector<Variable> momentum;
};

TEST(Apply, NoneGradientsStayAndAllNoneIsAnError) {
  World world(1);
  const Optimizer optimizer = SGD({.learning_rate = 1.0});
  optimizer.build(world.variables);
  const Numbers before = world.weights();
  optimizer.apply_gradients(std::vector<GradientAndVariable>{
      {Gradient(), world.variables[0]}, {ones({3}, kFloat64), world.variables[1]}});
  Numbers want = before;
  for (std::size_t i = 7; i < 10; ++i) want[i] -= 1;
  EXPECT_EQ(world.weights(), want);
  expect_error<InvalidArgument>({"no gradients"}, [&] {
    optimizer.apply_gradients(std::vector<GradientAndVariable>{{Gradient(), world.variables[0]}});
  });
  EXPECT_THROW(optimizer.apply_gradients({}), InvalidArgument);
  EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 1);
}

TEST(Apply, WrongContextsVariablesAndShapes) {
  World two(2);
  const Optimizer optimizer = Adam();
  EXPECT_THROW(optimizer.apply_gradients(two.gradients(0, 0)), FailedPrecondition);
  EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 0);
  World one(1);
  EXPECT_THROW(two.group.run([&](int) { optimizer.apply_gradients(one.gradients(0, 0)); }),
               FailedPrecondition);
  two.train(optimizer, 1);
  World other(2);
  EXPECT_THROW(two.group.run([&](int r) { optimizer.apply_gradients(other.gradients(0, r)); }),
               InvalidArgument);
  EXPECT_THROW(two.group.run([&](int) {
    optimizer.apply_gradients(
        std::vector<GradientAndVariable>{{zeros({2}, kFloat64), two.variables[0]}});
  }),
               InvalidArgument);
  EXPECT_THROW(Optimizer().learning_rate(), FailedPrecondition);
  // It still works.
  const Numbers before = two.weights();
  two.train(optimizer, 1);
  EXPECT_NE(two.weights(), before);
  EXPECT_EQ(two.weights(0), two.weights(1));
}

// SGD .1, gradients 1 | 2: [-.3, -.3] summed, [-.1] | [-.2] without.
TEST(Apply, SkippedAggregation) {
  for (const bool skip : {false, true}) {
    World world(2);
    const Optimizer optimizer = SGD({.learning_rate = 0.1});
    const Numbers before = world.weights();
    world.group.run([&](int r) {
      optimizer.apply_gradients(
          std::vector<GradientAndVariable>{{full({3}, r + 1.0, kFloat64), world.variables[1]}},
          {.skip_gradients_aggregation = skip});
    });
    EXPECT_NEAR(world.weights(0)[7], before[7] - (skip ? 0.1 : 0.3), 1e-15);
    EXPECT_NEAR(world.weights(1)[7], before[7] - (skip ? 0.2 : 0.3), 1e-15);
  }
  World one(1);
  const Optimizer alone = SGD({.learning_rate = 0.1, .momentum = 0.9});
  one.train(alone, 1, {.skip_gradients_aggregation = true});
}

// Every replica goes its own way, with slots of its own: as a world of one that has its gradients.
TEST(Apply, SkippedAggregationPartsTheSlots) {
  const std::vector<std::function<Optimizer()>> rules = {
      [] { return SGD({.momentum = 0.9}); },
      [] { return Adam({.learning_rate = 0.05, .weight_decay = 0.1, .global_clipnorm = 0.5}); },
      [] { return RMSprop({.momentum = 0.5, .centered = true, .clipnorm = 0.2}); },
      [] { return Adagrad({.clipvalue = 0.1}); },
      [] { return Adadelta({.learning_rate = 1.0}); },
      [] { return Adamax(); },
      [] { return Nadam({.gradient_accumulation_steps = 2}); },
      [] { return Ftrl({.learning_rate = 0.1}); },
      [] { return Lion(); }};
  for (const auto& make : rules) {
    for (const UpdateSchedule schedule : {UpdateSchedule::kSharded, UpdateSchedule::kPull}) {
      World world(2, schedule);
      const Optimizer optimizer = make();
      SCOPED_TRACE(optimizer.name());
      world.group.run([&](int r) {
        for (int t = 0; t < 6; ++t) {
          optimizer.apply_gradients(world.gradients(t + 3 * r, r),
                                    {.skip_gradients_aggregation = true});
        }
      });
      for (int r = 0; r < 2; ++r) {
        World alone(1);
        const Optimizer same = make();
        for (int t = 0; t < 6; ++t) {
          same.apply_gradients(alone.with_own(world.gradients(t + 3 * r, r)));
        }
        EXPECT_EQ(world.weights(r), alone.weights());
      }
      EXPECT_NE(world.weights(0), world.weights(1));
    }
  }
}

// TF: not aggregating and clipping are NotImplementedError; clipping works here.
TEST(Apply, ReplicasThatShareOneCopyCannotPart) {
  World world(2, UpdateSchedule::kSharded, kFloat64, ParameterPlacement::kCentral);
  for (const Optimizer& optimizer :
       {Optimizer(SGD()), Optimizer(Adam()), Optimizer(std::make_shared<OwnMomentum>())}) {
    testing::expect_error<Unimplemented>(
        {"skip_gradients_aggregation for \"layer/a\"", "use MirroredStrategy"},
        [&] { world.train(optimizer, 1, {.skip_gradients_aggregation = true}); });
  }
  World alone(1, UpdateSchedule::kSharded, kFloat64, ParameterPlacement::kCentral);
  alone.train(Adam(), 1, {.skip_gradients_aggregation = true});
}

TEST(Apply, UpdatesOfASharedCopyChangeEveryReplicasVersion) {
  World world(2, UpdateSchedule::kSharded, kFloat64, ParameterPlacement::kCentral);
  std::vector<uint64_t> before;
  for (int r = 0; r < 2; ++r) {
    before.push_back(world.variables[0].impl().leaf_of(r).tensor._version());
  }
  world.train(SGD(), 1);
  for (int r = 0; r < 2; ++r) {
    EXPECT_GT(world.variables[0].impl().leaf_of(r).tensor._version(),
              before[static_cast<std::size_t>(r)]);
  }
}

TEST(Apply, ConstraintsHoldAfterTheUpdate) {
  for (const auto& one : all_worlds()) {
    World& world = *one;
    const int replicas = world.group.size();
    const VariableCreatorScope scope(world.creator);
    const Variable bounded(
        ones({3}, kFloat64),
        {.name = "bounded", .constraint = [](const Tensor& w) { return w.clamp_min(0.25); }});
    const Optimizer optimizer = SGD({.learning_rate = 1.0});
    world.group.run([&](int) {
      optimizer.apply_gradients(
          std::vector<GradientAndVariable>{{tensor({0.1, 0.5, 2}, kFloat64), bounded}});
    });
    const Numbers want = replicas == 1 ? Numbers{0.9, 0.5, 0.25} : Numbers{0.8, 0.25, 0.25};
    for (const Variable& component : bounded.components()) {
      expect_close(to_vector<double>(component.value()), want);
    }
  }
}

// As in Keras: what has a gradient on no replica stays as it is, though its constraint would say
// otherwise. What has one on one replica is constrained on all.
TEST(Apply, ConstraintsLeaveWhatHasNoGradient) {
  for (const auto& one : all_worlds()) {
    World& world = *one;
    const VariableCreatorScope scope(world.creator);
    const auto capped = [](const Tensor& w) { return w.clamp_max(0.5); };
    const auto made = [&](const char* name) {
      return Variable(ones({3}, kFloat64), {.name = name, .constraint = capped});
    };
    const Variable both = made("both"), none = made("none"), first = made("first");
    const Optimizer optimizer = SGD({.learning_rate = 0.125});
    world.group.run([&](int replica) {
      const Gradient gradient = ones({3}, kFloat64);
      optimizer.apply_gradients(std::vector<GradientAndVariable>{
          {gradient, both}, {{}, none}, {replica == 0 ? gradient : Gradient(), first}});
    });
    for (const Variable& v : {both, none, first}) {
      for (const Variable& copy : v.components()) {
        EXPECT_EQ(to_vector<double>(copy.value()), Numbers(3, v.name() == "none" ? 1.0 : 0.5))
            << v.name();
      }
    }
  }
}

// What only an earlier call had a gradient for is constrained by the call that updates it, and the
// copies of replicas of which one had it stay equal in the calls between.
TEST(Apply, ConstraintsHoldWhereGradientsAccumulate) {
  for (const auto& one : all_worlds()) {
    World& world = *one;
    const VariableCreatorScope scope(world.creator);
    const Variable v(ones({3}, kFloat64),
                     {.constraint = [](const Tensor& w) { return w.clamp_max(0.5); }});
    const Variable other(ones({3}, kFloat64));
    const Optimizer optimizer = SGD({.learning_rate = 0.125, .gradient_accumulation_steps = 2});
    world.group.run([&](int replica) {
      for (const bool first : {true, false}) {
        const Gradient gradient = -4 * ones({3}, kFloat64);
        optimizer.apply_gradients(std::vector<GradientAndVariable>{
            {first && replica == 0 ? gradient : Gradient(), v}, {gradient, other}});
      }
    });
    for (const Variable& copy : v.components()) {
      EXPECT_EQ(to_vector<double>(copy.value()), Numbers(3, 0.5));
    }
  }
}

TEST(Variables, ListIterationsAndSlots) {
  World world(2);
  const Optimizer optimizer = Adam();
  EXPECT_TRUE(optimizer.variables().empty());
  world.train(optimizer, 2);
  const auto variables = optimizer.variables();
  ASSERT_EQ(variables.size(), 5U);
  EXPECT_EQ(variables[0].name(), "adam/iteration");
  EXPECT_EQ(variables[1].name(), "adam/layer_a_momentum");
  EXPECT_EQ(variables[4].name(), "adam/layer_b_velocity");
  EXPECT_EQ(variables[1].shape(), (Shape{7}));
  double m = 0;
  for (int t = 0; t < 2; ++t) m += (World::gradient(t, 2) - m) * 0.1;
  EXPECT_NEAR(variables[1].value()[2].item<double>(), m, 1e-12);

  // A second optimizer with the first one's state goes on as the first one does.
  World copy(2);
  const Optimizer second = Adam();
  second.build(copy.variables);
  for (std::size_t v = 0; v < 2; ++v) copy.variables[v].assign(world.variables[v].value());
  const auto state = second.variables();
  for (std::size_t i = 0; i < 5; ++i) state[i].assign(variables[i].value().clone());
  world.train(optimizer, 3);
  copy.train(second, 3);
  EXPECT_EQ(copy.weights(), world.weights());
  EXPECT_THROW(state[1].local_tensor(), FailedPrecondition);
}

TEST(OwnRule, UpdatesEachComponentWithTheSum) {
  check([] { return Optimizer(std::make_shared<OwnMomentum>()); },
        expected([](double w, double g, Numbers& s, int) {
          s[0] = s[0] * 0.9 - g * 0.1;
          return w + s[0];
        }));
  World world(1);
  const Optimizer optimizer = std::make_shared<OwnMomentum>();
  optimizer.build(world.variables);
  EXPECT_EQ(optimizer.variables().size(), 3U);
  EXPECT_EQ(optimizer.variables()[1].name(), "own/layer_a_momentum");
}

TEST(Variables, HaveKerasNames) {
  const auto names = [](const Optimizer& optimizer) {
    World world(1);
    optimizer.build(std::span(world.variables).first(1));
    std::string all;
    for (const Variable& v : optimizer.variables()) all += v.name() + " ";
    return all;
  };
  EXPECT_EQ(names(Adadelta()),
            "adadelta/iteration adadelta/layer_a_accumulated_grad "
            "adadelta/layer_a_accumulated_delta_var ");
  EXPECT_EQ(names(Adamax()), "adamax/iteration adamax/layer_a_momentum adamax/layer_a_norm ");
  EXPECT_EQ(names(Nadam()), "nadam/iteration nadam/layer_a_momentum nadam/layer_a_velocity ");
  EXPECT_EQ(names(Ftrl()), "ftrl/iteration ftrl/layer_a_accumulator ftrl/layer_a_linear ");
  EXPECT_EQ(names(Lion({.gradient_accumulation_steps = 2})),
            "lion/iteration lion/layer_a_gradient_accumulator lion/layer_a_momentum ");
}

// As writes. An own rule, because those of the library ask their updater, too.
TEST(Building, RefusesVariablesOfOtherStrategies) {
  struct Rule : OptimizerBase {
    void update(const Variable& w, const Gradient& g) override {
      w.assign_sub(Tensor(g) * learning_rate());
    }
  };
  const MirroredStrategy two({"CPU:0", "CPU:1"}), three({"CPU:0", "CPU:1", "CPU:2"});
  std::optional<Scope> scope(two.scope());
  const Variable v(ones({2}), {.name = "kernel"});
  scope.reset();
  scope.emplace(three.scope());
  const Variable w(ones({2}), {.name = "bias"});
  for (const Optimizer& optimizer : {Optimizer(SGD()), Optimizer(std::make_shared<Rule>())}) {
    expect_error<FailedPrecondition>(
        {"[optimizer.build] expected the scope of ", "over CPU:0, CPU:1",
         "over CPU:0, CPU:1, CPU:2", "an optimizer of its variable \"kernel\"",
         "strategies cannot be mixed"},
        [&] { optimizer.build({v}); });
  }
  scope.reset();
  const Variable plain(ones({2}), {.name = "plain"});
  for (const Optimizer& optimizer : {Optimizer(SGD()), Optimizer(std::make_shared<Rule>())}) {
    expect_error<InvalidArgument>(
        {"[optimizer.build] expected variables of one strategy, got", "\"kernel\"",
         "over CPU:0, CPU:1", "\"bias\"", "over CPU:0, CPU:1, CPU:2"},
        [&] {
          optimizer.build({v, w});
        });
    EXPECT_THROW(optimizer.build({plain, v}), InvalidArgument);
    optimizer.build({v});
    EXPECT_TRUE(optimizer.iterations());
  }
}

}  // namespace
}  // namespace cohort::keras
