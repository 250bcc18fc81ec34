// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/swap_ema_weights.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/checkpoint/test_objects.h"
#include "cohort/data/dataset.h"
#include "cohort/keras/callbacks/backup_and_restore.h"
#include "cohort/keras/callbacks/lambda_callback.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using Weights = std::vector<double>;

// y = w x with x = 1 and target 0 under SGD(0.25) of w^2: w halves at each step, one step an epoch.
// The averages with momentum 0.5 are 4 -> 2 (after the first step), (2 + 1) / 2, (1.5 + 0.5) / 2.
struct SwapEMA : ::testing::Test {
  static Sequential make() {
    Sequential model{{Dense(1, {.use_bias = false, .kernel_initializer = Constant(4.0)})}};
    model.compile({.optimizer = SGD({.learning_rate = 0.25, .use_ema = true, .ema_momentum = 0.5}),
                   .loss = "mse"});
    return model;
  }
  static double weight(const Model& model) {
    return model.trainable_variables()[0].value().item().toDouble();
  }
  // The weight that `hook` of LambdaCallback sees each time, behind SwapEMAWeights.
  History fit(Sequential& model, const SwapEMAWeightsOptions& options, int epochs,
              const Callback& watch) {
    const Tensor x = ones({4, 1});
    const Tensor y = zeros({4, 1});
    const Dataset data = Dataset::from_tensor_slices({x, y}).batch(4);
    return model.fit(data, {.epochs = epochs,
                            .validation_data = data,
                            .callbacks = {SwapEMAWeights(options), watch},
                            .verbose = Verbose::kSilent});
  }
};

TEST_F(SwapEMA, ValidationSeesTheAverages) {
  Sequential model = make();
  Weights in_epochs;
  const History history = fit(
      model, {}, 3,
      LambdaCallback({.on_epoch_end = [&](int, Logs&) { in_epochs.push_back(weight(model)); }}));
  EXPECT_EQ(in_epochs, (Weights{2, 1, 0.5})) << "training goes on with its own";
  EXPECT_EQ(history.at("val_loss"), (Weights{4, 1.5 * 1.5, 1}));
  EXPECT_EQ(weight(model), 1) << "fit ends with the averages";
}

TEST_F(SwapEMA, OtherCallbacksSeeTheAveragesAtAnEpochsEnd) {
  Sequential model = make();
  Weights in_epochs;
  fit(model, {.swap_on_epoch = true}, 3,
      LambdaCallback({.on_epoch_end = [&](int, Logs&) { in_epochs.push_back(weight(model)); }}));
  EXPECT_EQ(in_epochs, (Weights{2, 1.5, 1}));
  EXPECT_EQ(weight(model), 1);
}

TEST_F(SwapEMA, AFitThatEndsEarlyHasTheAverages) {
  Sequential model = make();
  fit(model, {.swap_on_epoch = true}, 5, LambdaCallback({.on_epoch_end = [&](int epoch, Logs&) {
        if (epoch == 1) model.stop_training();
      }}));
  EXPECT_EQ(weight(model), 1.5);
}

TEST_F(SwapEMA, PredictGivesTheWeightsBack) {
  Sequential model = make();
  const SwapEMAWeights swap;
  model.train_on_batch(ones({4, 1}), zeros({4, 1}));
  model.train_on_batch(ones({4, 1}), zeros({4, 1}));
  EXPECT_EQ(model.predict(ones({1, 1}), {.callbacks = {swap}, .verbose = Verbose::kSilent})
                .item<double>(),
            1.5);
  EXPECT_EQ(weight(model), 1);
}

// Throws at a step of evaluate, predict, or a fit's validation.
struct ThrowsInStep : CallbackBase {
  void on_test_batch_end(int64_t, Logs&) override { throw std::runtime_error("in a step"); }
  void on_predict_batch_end(int64_t) override { throw std::runtime_error("in a step"); }
};

TEST_F(SwapEMA, WhatEndsWithAnErrorGivesTheWeightsBack) {
  for (const int replicas : {0, 2}) {
    const Strategy strategy = cohort::testing::strategy_of(replicas);
    const auto scope = strategy.scope();
    Sequential model = make();
    const Tensor x = ones({4, 1}), y = zeros({4, 1});
    model.train_on_batch(x, y);
    model.train_on_batch(x, y);
    const std::vector<Callback> callbacks = {SwapEMAWeights(), std::make_shared<ThrowsInStep>()};
    const auto quiet = Verbose::kSilent;
    EXPECT_THROW(model.evaluate(x, y, {.callbacks = callbacks, .verbose = quiet}),
                 std::runtime_error);
    EXPECT_EQ(weight(model), 1);
    EXPECT_THROW(model.predict(x, {.callbacks = callbacks, .verbose = quiet}), std::runtime_error);
    EXPECT_EQ(weight(model), 1);
    const Dataset data = Dataset::from_tensor_slices({x, y}).batch(4);
    EXPECT_THROW(
        model.fit(data, {.validation_data = data, .callbacks = callbacks, .verbose = quiet}),
        std::runtime_error);
    EXPECT_EQ(weight(model), 0.5);
    model.train_on_batch(x, y);
    EXPECT_EQ(weight(model), 0.25) << "goes on with its own";
  }
}

TEST_F(SwapEMA, EveryStrategyHasTheSameAverages) {
  for (const Strategy& strategy :
       {testing::strategy_of(0), testing::strategy_of(1), testing::strategy_of(2),
        Strategy(CentralStorageStrategy({.compute_devices = {"CPU:0", "CPU:1"}}))}) {
    auto scope = strategy.scope();
    Sequential model = make();
    Weights in_epochs;
    const History history = fit(
        model, {.swap_on_epoch = true}, 3,
        LambdaCallback({.on_epoch_end = [&](int, Logs&) { in_epochs.push_back(weight(model)); }}));
    EXPECT_EQ(in_epochs, (Weights{2, 1.5, 1})) << strategy;
    EXPECT_EQ(history.at("val_loss"), (Weights{4, 1.5 * 1.5, 1})) << strategy;
    EXPECT_EQ(weight(model), 1) << strategy;
  }
}

using SwapEMABackup = cohort::testing::FolderTest;

// A model of a new process has no optimizer variables yet when the backup comes.
TEST_F(SwapEMABackup, GoesOnWithItsOwnWeights) {
  const Tensor x = ones({4, 1}), y = zeros({4, 1});
  const Dataset data = Dataset::from_tensor_slices({x, y}).batch(4);
  for (const int replicas : {0, 1, 2}) {
    const Strategy strategy = cohort::testing::strategy_of(replicas);
    auto scope = strategy.scope();
    const std::string folder = path("of" + std::to_string(replicas));
    Weights at_begin, at_end;
    const auto fit = [&](int fails_at) {
      Sequential model = SwapEMA::make();
      const LambdaCallback watch(
          {.on_epoch_begin =
               [&](int epoch) {
                 if (epoch == fails_at) throw std::runtime_error("killed");
                 at_begin.push_back(SwapEMA::weight(model));
               },
           .on_epoch_end = [&](int, Logs&) { at_end.push_back(SwapEMA::weight(model)); }});
      const SwapEMAWeights swap({.swap_on_epoch = true});
      model.fit(data, {.epochs = 4,
                       .callbacks = {swap, watch, BackupAndRestore(folder)},
                       .verbose = Verbose::kSilent});
    };
    EXPECT_THROW(fit(2), std::runtime_error);
    fit(-1);
    EXPECT_EQ(at_begin, (Weights{4, 2, 1, 0.5})) << replicas;
    EXPECT_EQ(at_end, (Weights{2, 1.5, 1, 0.625})) << replicas;
  }
}

TEST_F(SwapEMA, AnOptimizerWithoutAveragesIsRefused) {
  Sequential model{{Dense(1)}};
  model.compile({.optimizer = "sgd", .loss = "mse"});
  testing::expect_error<FailedPrecondition>({"use_ema", "SGD"}, [&] {
    model.fit(ones({4, 1}), zeros({4, 1}),
              {.callbacks = {SwapEMAWeights()}, .verbose = Verbose::kSilent});
  });
}

}  // namespace
}  // namespace cohort::keras
