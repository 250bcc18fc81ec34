// SPDX-License-Identifier: Apache-2.0
//
// A step that fails leaves no trace: weights, and the statistics that its forward pass moved.
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/keras/keras.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::keras {
namespace {

using testing::strategy_of;

constexpr Verbose kSilent = Verbose::kSilent;

// The bits of all variables, each replica's own.
std::vector<std::vector<float>> state_of(const Model& model) {
  std::vector<std::vector<float>> state;
  for (const Variable& v : model.variables()) {
    for (const Variable& c : v.components()) state.push_back(to_vector<float>(c.value()));
  }
  return state;
}

struct Watch : CallbackBase {
  std::vector<std::vector<float>> after_last_step;
  int64_t steps = 0;
  void on_train_batch_end(int64_t step, Logs&) override {
    steps = step + 1;
    after_last_step = state_of(model());
  }
};

Tensor rows(int64_t n) { return (arange(n * 4, kFloat32).view({n, 4}) * 0.37).sin() * 3; }

// 0: the default strategy.
class FailedStep : public ::testing::TestWithParam<int> {
 protected:
  int replicas() const { return std::max(1, GetParam()); }
  const Strategy strategy_ = strategy_of(GetParam());
  const Scope scope_ = strategy_.scope();
  const int failing_ = replicas() - 1;
};
INSTANTIATE_TEST_SUITE_P(Replicas, FailedStep, ::testing::Values(0, 1, 2, 3));

TEST_P(FailedStep, OfFitMovesNoStatistics) {
  Sequential model({BatchNormalization({.momentum = 0.5}), Dense(1)});
  std::atomic<int> calls{0};
  // The last replica's third loss; by then all have been through the forward pass, or may be.
  model.compile({.loss = [&](const Tensor& y, const Tensor& p) -> Tensor {
    if (std::max(0, current_replica()) == failing_ && ++calls == 3) throw InvalidArgument("bad");
    return (y - p).square().mean(-1);
  }});
  const auto watch = std::make_shared<Watch>();
  const Dataset data = Dataset::from_tensor_slices({rows(60), zeros({60, 1})}).batch(12);
  EXPECT_THROW(model.fit(data, {.callbacks = {watch}, .verbose = kSilent}), InvalidArgument);
  EXPECT_EQ(watch->steps, 2);
  EXPECT_EQ(state_of(model), watch->after_last_step);
  // And the next good one moves them again.
  model.fit(data, {.verbose = kSilent, .steps_per_epoch = 1});
  EXPECT_NE(state_of(model), watch->after_last_step);
}

TEST_P(FailedStep, OfACustomLoopMovesNoStatistics) {
  BatchNormalization layer({.momentum = 0.5});
  const SGD optimizer;
  enum class Fails { kNever, kBeforeTheUpdate, kAfterTheUpdate };
  const auto step = [&](Fails when) {
    strategy_.run([&] {
      const bool mine = std::max(0, current_replica()) == failing_;
      GradientTape tape;
      const Tensor loss = layer(rows(4), {.training = true}).square().sum();
      if (mine && when == Fails::kBeforeTheUpdate) throw InvalidArgument("bad");
      optimizer.apply_gradients(tape.gradient(loss, layer.trainable_variables()));
      if (mine && when == Fails::kAfterTheUpdate) throw InvalidArgument("bad");
    });
  };
  const auto statistics = [&] {
    std::vector<float> all;
    for (const Variable& v : layer.base().non_trainable_variables()) {
      for (const Variable& c : v.components()) {
        for (const float x : to_vector<float>(c.value())) all.push_back(x);
      }
    }
    return all;
  };
  step(Fails::kNever);
  const std::vector<float> good = statistics();
  EXPECT_THROW(step(Fails::kBeforeTheUpdate), InvalidArgument);
  EXPECT_EQ(statistics(), good);
  // The weights have moved, and so have the statistics.
  EXPECT_THROW(step(Fails::kAfterTheUpdate), InvalidArgument);
  EXPECT_NE(statistics(), good);
}

TEST_P(FailedStep, TakesBackWhatALayerThatIsUsedTwiceHasMoved) {
  BatchNormalization layer({.momentum = 0.5});
  layer.base().ensure_built({kUnknownDim, 4});
  const auto mean = [&] { return to_vector<float>(layer.variables()[2].components()[0].value()); };
  const auto run = [&](bool fails) {
    strategy_.run([&] {
      layer(rows(4), {.training = true});
      layer(rows(8), {.training = true});
      if (fails && std::max(0, current_replica()) == failing_) throw InvalidArgument("bad");
    });
  };
  const std::vector<float> before = mean();
  EXPECT_THROW(run(true), InvalidArgument);
  EXPECT_EQ(mean(), before);
  run(false);
  const Tensor once = rows(4).mean(0) * 0.5;
  const Tensor twice = once * 0.5 + rows(8).mean(0) * 0.5;
  EXPECT_TRUE(at::allclose(layer.variables()[2].components()[0].value(), twice, 1e-5, 1e-6));
}

// Of one's own loop, whose metrics count from one reset to the next.
TEST_P(FailedStep, IsNotInTheLossOfLaterOnes) {
  Sequential model({Dense(1, {.kernel_initializer = "zeros"})});
  model.compile({.optimizer = SGD({.learning_rate = 0.0}), .loss = "mse"});
  Logs logs;
  const auto step = [&](double target, bool fails) {
    const Tensor x = rows(6), y = full({6, 1}, target);
    strategy_.run([&] {
      GradientTape tape;
      const Tensor y_pred = model(x, {.training = true});
      const Tensor loss = model.compute_loss(x, y, y_pred);
      if (fails && std::max(0, current_replica()) == failing_) throw InvalidArgument("bad");
      model.optimizer().apply_gradients(tape.gradient(loss, model.trainable_variables()));
      const Logs mine = model.compute_metrics(x, y, y_pred);
      if (std::max(0, current_replica()) == 0) logs = mine;
    });
  };
  step(1, false);
  EXPECT_NEAR(logs.number("loss"), 1, 1e-6);
  EXPECT_THROW(step(100, true), InvalidArgument);
  EXPECT_NEAR(logs.number("loss"), 1, 1e-6);
  step(2, false);
  EXPECT_NEAR(logs.number("loss"), (1 + 4) / 2.0, 1e-6);
}

}  // namespace
}  // namespace cohort::keras
