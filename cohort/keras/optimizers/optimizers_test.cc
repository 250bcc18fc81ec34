// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/optimizers.h"

#include <ATen/ops/sqrt.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "cohort/base/error.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/local_variables.h"

namespace cohort::keras {
namespace {

using cohort::internal::LocalVariables;
using cohort::internal::LocalVariablesOptions;
using cohort::internal::ReplicaGroup;
using cohort::internal::UpdateSchedule;
using cohort::internal::VariableCreatorScope;
using Numbers = std::vector<double>;

constexpr int kSteps = 20;

/// Replicas with two variables, "a" of 7 and "b" of 3 elements.
struct World {
  explicit World(int replicas, UpdateSchedule schedule = UpdateSchedule::kSharded,
                 DType dtype = kFloat64)
      : group({.replicas = replicas}) {
    LocalVariablesOptions options;
    options.devices.clear();
    for (int r = 0; r < replicas; ++r) options.devices.emplace_back("CPU:" + std::to_string(r));
    options.schedule = schedule;
    creator = std::make_shared<LocalVariables>(options);
    const VariableCreatorScope scope(creator);
    variables.emplace_back(start(7).to(dtype), VariableOptions{.name = "layer/a"});
    variables.emplace_back(start(3).to(dtype), VariableOptions{.name = "layer/b"});
  }
  static Tensor start(int64_t n) { return (arange(n).to(kFloat64) - 2.5) * 0.3; }

  /// Gradient of element i of a variable at a step, of one replica; their sum over replicas is
  /// gradient(step, i).
  Gradients gradients(int step, int replica) const {
    std::vector<GradientAndVariable> pairs;
    for (const Variable& variable : variables) {
      const int64_t n = variable.impl().numel();
      Tensor g = empty({n}, kFloat64);
      for (int64_t i = 0; i < n; ++i) {
        const double share = group.size() == 1 ? 1 : (replica == 0 ? 0.25 : 0.75);
        g.mutable_data_ptr<double>()[i] = gradient(step, i) * share;
      }
      pairs.push_back({g.to(variable.dtype()), variable});
    }
    return pairs;
  }
  static double gradient(int step, int64_t i) {
    return std::cos(0.7 * step + 1.3 * static_cast<double>(i)) * (i == 4 ? 5 : 0.8);
  }

  void train(const Optimizer& optimizer, int steps = kSteps, ApplyOptions options = {}) {
    group.run([&](int r) {
      for (int t = 0; t < steps; ++t) optimizer.apply_gradients(gradients(t, r), options);
    });
  }
  Numbers weights(int replica = 0) const {
    Numbers all;
    for (const Variable& variable : variables) {
      const auto part =
          to_vector<double>(variable.components()[static_cast<std::size_t>(replica)].value());
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  ReplicaGroup group;
  std::shared_ptr<LocalVariables> creator;
  std::vector<Variable> variables;
};

/// Keras's published formula for one element: w after the step; s are its slots.
using Formula = std::function<double(double w, double g, Numbers& s, int step)>;

struct Clipping {
  double value = INFINITY;
  double norm = INFINITY;
  double global_norm = INFINITY;
};

double norm_of(int step, int64_t n) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += std::pow(World::gradient(step, i), 2);
  return std::sqrt(squares);
}

Numbers expected(const Formula& formula, double slot_start = 0, Clipping clip = {},
                 const std::function<double(int step, int variable)>& decay = nullptr) {
  Numbers all;
  for (int v = 0; v < 2; ++v) {
    const int64_t n = v == 0 ? 7 : 3;
    for (int64_t i = 0; i < n; ++i) {
      double w = (static_cast<double>(i) - 2.5) * 0.3;
      Numbers slots(3, slot_start);
      for (int t = 0; t < kSteps; ++t) {
        double g = World::gradient(t, i);
        g *= std::min(1.0, clip.norm / norm_of(t, n));
        g *= std::min(1.0, clip.global_norm / std::hypot(norm_of(t, 7), norm_of(t, 3)));
        g = std::clamp(g, -clip.value, clip.value);
        if (decay) w -= w * decay(t, v);
        w = formula(w, g, slots, t);
      }
      all.push_back(w);
    }
  }
  return all;
}

void expect_close(const Numbers& got, const Numbers& want, double tolerance = 1e-12) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], tolerance * (1 + std::fabs(want[i]))) << "element " << i;
  }
}

/// The formula on one replica and on two, under both schedules, on every copy.
void check(const std::function<Optimizer()>& make, const Numbers& want) {
  for (const UpdateSchedule schedule : {UpdateSchedule::kSharded, UpdateSchedule::kPull}) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(replicas);
      World world(replicas, schedule);
      const Optimizer optimizer = make();
      world.train(optimizer);
      for (int r = 0; r < replicas; ++r) expect_close(world.weights(r), want);
      EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), kSteps);
    }
  }
}

Formula sgd(double rate) {
  return [=](double w, double g, Numbers&, int) { return w - rate * g; };
}

Formula adam(double rate, bool amsgrad = false) {
  return [=](double w, double g, Numbers& s, int t) {
    const double b1 = 0.9, b2 = 0.999;
    const double alpha = rate * std::sqrt(1 - std::pow(b2, t + 1)) / (1 - std::pow(b1, t + 1));
    s[0] += (g - s[0]) * (1 - b1);
    s[1] += (g * g - s[1]) * (1 - b2);
    if (amsgrad) s[2] = std::max(s[2], s[1]);
    return w - s[0] * alpha / (std::sqrt(amsgrad ? s[2] : s[1]) + 1e-7);
  };
}

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

TEST(Adagrad, StartsAtATenth) {
  check([] { return Adagrad({.learning_rate = 0.1}); },
        expected(
            [](double w, double g, Numbers& s, int) {
              s[0] += g * g;
              return w - 0.1 * g / std::sqrt(s[0] + 1e-7);
            },
            0.1));
}

TEST(Clipping, ActsOnTheSumOverReplicas) {
  check([] { return SGD({.learning_rate = 0.1, .clipvalue = 0.5}); },
        expected(sgd(0.1), 0, {.value = 0.5}));
  check([] { return SGD({.learning_rate = 0.1, .clipnorm = 1.5}); },
        expected(sgd(0.1), 0, {.norm = 1.5}));
  check([] { return SGD({.learning_rate = 0.1, .global_clipnorm = 2.0}); },
        expected(sgd(0.1), 0, {.global_norm = 2.0}));
  EXPECT_THROW(SGD({.clipnorm = 1, .clipvalue = 1}), InvalidArgument);
  EXPECT_THROW(Adam({.global_clipnorm = 0}), InvalidArgument);
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
           [] { return RMSprop({.clipnorm = 0.5}); }}) {
    World sharded(2, UpdateSchedule::kSharded, kFloat32);
    World pull(2, UpdateSchedule::kPull, kFloat32);
    sharded.train(make());
    pull.train(make());
    EXPECT_EQ(sharded.weights(0), pull.weights(0));
    EXPECT_EQ(sharded.weights(1), pull.weights(0));
    EXPECT_EQ(pull.weights(1), pull.weights(0));
  }
}

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
  try {
    optimizer.apply_gradients(std::vector<GradientAndVariable>{{Gradient(), world.variables[0]}});
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& e) {
    EXPECT_NE(std::string(e.what()).find("no gradients"), std::string::npos) << e.what();
  }
  EXPECT_THROW(optimizer.apply_gradients({}), InvalidArgument);
  EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 1);
}

TEST(Apply, WrongContextsVariablesAndShapes) {
  World two(2);
  const Optimizer optimizer = Adam();
  EXPECT_THROW(optimizer.apply_gradients(two.gradients(0, 0)), FailedPrecondition);
  EXPECT_THROW(optimizer.iterations(), FailedPrecondition);
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
  World world(2);
  EXPECT_THROW(world.train(Adam(), 1, {.skip_gradients_aggregation = true}), Unimplemented);
  World one(1);
  const Optimizer alone = SGD({.learning_rate = 0.1, .momentum = 0.9});
  one.train(alone, 1, {.skip_gradients_aggregation = true});
}

TEST(Apply, ConstraintsHoldAfterTheUpdate) {
  for (const int replicas : {1, 2}) {
    World world(replicas);
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

TEST(Names, KerasDefaults) {
  EXPECT_EQ(Optimizer("adam").learning_rate(), 0.001);
  EXPECT_EQ(Optimizer("SGD").learning_rate(), 0.01);
  EXPECT_EQ(Optimizer("rmsprop").name(), "rmsprop");
  EXPECT_EQ(Optimizer("adagrad").learning_rate(), 0.001);
  EXPECT_EQ(Optimizer("adamw").name(), "adamw");
  EXPECT_THROW(Optimizer("adan"), InvalidArgument);
}

}  // namespace
}  // namespace cohort::keras
