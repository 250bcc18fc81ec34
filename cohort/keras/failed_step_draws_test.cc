// SPDX-License-Identifier: Apache-2.0
//
// Training that goes on after a step that failed gives, to the bit, what it gives without that
// step: random numbers and metrics, too.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/keras/keras.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::keras {
namespace {

using testing::strategy_of;

int this_replica() { return std::max(0, current_replica()); }

// Throws in one replica while `armed`.
struct Fuse : LayerBase {
  std::atomic<int> armed{-1};
  bool may_have_weights() const override { return false; }
  Tensor call(const Tensor& x, const CallArgs&) override {
    if (armed == this_replica()) throw InvalidArgument("blown");
    return x;
  }
};

// Draws numbers that belong to no layer.
struct Shaken : LayerBase {
  bool may_have_weights() const override { return false; }
  Tensor call(const Tensor& x, const CallArgs& args) override {
    return args.training ? x + random_normal(shape_of(x)) * 0.1 : x;
  }
};

struct DrawingProgram {
  std::shared_ptr<Fuse> fuse = std::make_shared<Fuse>();
  Sequential model = Sequential(std::vector<Layer>{});
  Strategy strategy;

  // The fuse is ahead of what draws, or behind.
  DrawingProgram(const Strategy& s, bool ahead) : strategy(s) {
    set_seed(7);
    if (ahead) model.add(fuse);
    for (const Layer& layer :
         std::vector<Layer>{Dense(8, {.activation = "tanh"}), Dropout(0.5), GaussianNoise(0.1),
                            std::make_shared<Shaken>(), BatchNormalization({.momentum = 0.5})}) {
      model.add(layer);
    }
    if (!ahead) model.add(fuse);
    model.add(Dense(1));
    model.compile({.optimizer = SGD({.learning_rate = 0.1, .momentum = 0.9}),
                   .loss = "mse",
                   .metrics = {"mae"}});
  }

  std::vector<std::vector<float>> state() const {
    std::vector<std::vector<float>> state;
    for (const Variable& v : model.variables()) {
      for (const Variable& c : v.components()) state.push_back(to_vector<float>(c.value()));
    }
    state.push_back(to_vector<float>(model.optimizer().iterations().value().to(kFloat32)));
    return state;
  }
};

Tensor waves(int64_t i) { return (arange(48, kFloat32).view({12, 4}) * 0.37 + i).sin() * 3; }
Tensor sums(int64_t i) { return waves(i).sum(1, true); }

double train_once(DrawingProgram& p, int64_t i) {
  return p.model.train_on_batch(waves(i), sums(i)).number("loss");
}

double fit_once(DrawingProgram& p, int64_t i) {
  return p.model
      .fit(waves(i), sums(i), {.batch_size = 12, .verbose = Verbose::kSilent, .shuffle = false})
      .history.at("loss")[0];
}

double own_loop(DrawingProgram& p, int64_t i) {
  const auto losses = p.strategy.run([&] {
    const Tensor x = waves(i + 10 * this_replica()), y = sums(i + 10 * this_replica());
    GradientTape tape;
    const Tensor loss = (p.model(x, {.training = true}) - y).square().mean() * 0.1;
    p.model.optimizer().apply_gradients(tape.gradient(loss, p.model.trainable_variables()));
    return loss.detach();
  });
  return p.strategy.reduce(ReduceOp::kSum, losses).item<double>();
}

using OneStep = double (*)(DrawingProgram& program, int64_t i);

struct AfterSteps {
  std::vector<double> losses;
  std::vector<std::vector<float>> state;
  bool operator==(const AfterSteps&) const = default;
};

AfterSteps train_with(const Strategy& strategy, OneStep step, bool ahead, bool with_failures) {
  const auto scope = strategy.scope();
  DrawingProgram program(strategy, ahead);
  AfterSteps out;
  for (int64_t i = 0; i < 5; ++i) {
    if (with_failures && i >= 2) {
      program.fuse->armed = static_cast<int>(i) % strategy.num_replicas_in_sync();
      EXPECT_THROW(step(program, 20 + i), InvalidArgument);
      program.fuse->armed = -1;
    }
    out.losses.push_back(step(program, i));
  }
  out.state = program.state();
  return out;
}

// 0: the default strategy.
class AfterAFailedStep : public ::testing::TestWithParam<int> {
 protected:
  const Strategy strategy_ = strategy_of(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Replicas, AfterAFailedStep, ::testing::Values(0, 1, 2, 3));

TEST_P(AfterAFailedStep, AllIsAsWithoutIt) {
  for (const OneStep step : {train_once, fit_once, own_loop}) {
    for (const bool ahead : {true, false}) {
      SCOPED_TRACE(str_cat(step == train_once ? "train_on_batch"
                           : step == fit_once ? "fit"
                                              : "run",
                           ahead ? ", ahead of draws" : ", behind draws"));
      const AfterSteps plain = train_with(strategy_, step, ahead, false);
      const AfterSteps after = train_with(strategy_, step, ahead, true);
      EXPECT_EQ(plain.losses, after.losses);
      EXPECT_EQ(plain.state, after.state);
      EXPECT_NE(plain.losses[3], plain.losses[4]);
    }
  }
}

// Counts calls, and throws at one of them in one replica.
struct Fussy : MetricBase {
  int fails_in = 0;
  std::atomic<bool> fails{false};
  Variable count = add_variable({}, "count");
  Fussy() : MetricBase("fussy") {}
  void update_state(const Tensor&, const Tensor&, const Tensor&) override {
    count.assign_add(1.0);
    if (fails && this_replica() == fails_in) throw InvalidArgument("fussy");
  }
  Tensor result() override { return count.value(); }
};

TEST_P(AfterAFailedStep, OfAMetricAllIsAsBefore) {
  const auto scope = strategy_.scope();
  DrawingProgram program(strategy_, true);
  const auto fussy = std::make_shared<Fussy>();
  const metrics::MeanAbsoluteError mae;
  const int replicas = strategy_.num_replicas_in_sync();
  fussy->fails_in = replicas - 1;
  program.model.compile({.optimizer = SGD({.learning_rate = 0.1, .momentum = 0.9}),
                         .loss = "mse",
                         .metrics = {mae, Metric(fussy)}});
  train_once(program, 0);
  const auto before = program.state();
  const double mean = mae.result().item<double>(), count = fussy->count.value().item<double>();
  EXPECT_EQ(count, replicas);
  fussy->fails = true;
  EXPECT_THROW(train_once(program, 1), InvalidArgument);
  EXPECT_THROW(fit_once(program, 1), InvalidArgument);
  EXPECT_EQ(program.state(), before);
  fussy->fails = false;
  program.model.reset_metrics();
  // Of one's own loop, whose metrics count from one reset to the next.
  const auto own_step = [&](int64_t i) {
    strategy_.run([&] {
      const Tensor x = waves(i), y = sums(i);
      const Tensor y_pred = program.model(x, {.training = true});
      program.model.compute_metrics(x, y, y_pred);
    });
  };
  own_step(2);
  const double now = mae.result().item<double>();
  EXPECT_EQ(fussy->count.value().item<double>(), replicas);
  EXPECT_NE(now, mean);
  fussy->fails = true;
  EXPECT_THROW(own_step(3), InvalidArgument);
  EXPECT_EQ(mae.result().item<double>(), now);
  EXPECT_EQ(fussy->count.value().item<double>(), replicas);
}

// Constraints follow the update, which is not taken back: all copies have it, and no constraint.
TEST_P(AfterAFailedStep, OfAConstraintTheUpdateIsMadeEverywhere) {
  const auto scope = strategy_.scope();
  const int last = strategy_.num_replicas_in_sync() - 1;
  std::atomic<bool> fails{false};
  const auto constraint = [&](const Tensor& w) -> Tensor {
    if (fails && this_replica() == last) throw InvalidArgument("cannot");
    return w * 0.5;
  };
  Sequential model({Dense(
      1, {.use_bias = false, .kernel_initializer = "ones", .kernel_constraint = constraint})});
  model.compile({.optimizer = SGD({.learning_rate = 0.0}), .loss = "mse"});
  const auto weights = [&] {
    std::vector<float> all;
    for (const Variable& c : model.variables()[0].components()) {
      all.push_back(c.value()[0][0].item<float>());
    }
    return all;
  };
  const std::size_t copies = static_cast<std::size_t>(last) + 1;
  model.train_on_batch(waves(0), sums(0));
  EXPECT_EQ(weights(), std::vector<float>(copies, 0.5F));
  fails = true;
  EXPECT_THROW(model.train_on_batch(waves(1), sums(1)), InvalidArgument);
  EXPECT_EQ(weights(), std::vector<float>(copies, 0.5F));
  EXPECT_EQ(model.optimizer().iterations().value().item<int64_t>(), 2);
  fails = false;
  model.train_on_batch(waves(2), sums(2));
  EXPECT_EQ(weights(), std::vector<float>(copies, 0.25F));
  EXPECT_EQ(model.optimizer().iterations().value().item<int64_t>(), 3);
}

// Several threads may run a strategy of one replica at once.
TEST(FailedDraws, AreNotDrawnAgainWhereAnotherThreadHasDrawnSince) {
  const Strategy strategy = strategy_of(1);
  const Dropout layer(0.5);
  const Tensor x = ones({8, 8});
  std::vector<float> mine, others;
  const auto draw = [&](std::vector<float>& out) {
    out = to_vector<float>(layer(x, {.training = true}) + random_uniform({8, 8}));
  };
  EXPECT_THROW(strategy.run([&] {
    draw(mine);
    std::thread([&] { strategy.run([&] { draw(others); }); }).join();
    throw InvalidArgument("bad");
  }),
               InvalidArgument);
  std::vector<float> next, again;
  strategy.run([&] { draw(next); });
  EXPECT_NE(next, mine);
  EXPECT_NE(next, others);
  EXPECT_THROW(strategy.run([&] {
    draw(mine);
    throw InvalidArgument("bad");
  }),
               InvalidArgument);
  strategy.run([&] { draw(again); });
  EXPECT_EQ(mine, again);
}

TEST(FailedDraws, MayOutliveTheirLayer) {
  for (const int replicas : {1, 2}) {
    const Strategy strategy = strategy_of(replicas);
    EXPECT_THROW(strategy.run([&] {
      const auto layer = std::make_shared<DropoutLayer>(DropoutConfig{{}, 0.5});
      layer->call(ones({4}), {.training = true});
      throw InvalidArgument("bad");
    }),
                 InvalidArgument);
  }
}

}  // namespace
}  // namespace cohort::keras
