// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/loss_scale_optimizer.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/checkpoint/checkpoint.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/model.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::testing::strategy_of;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> floats(const Tensor& x) {
  return {x.const_data_ptr<float>(), x.const_data_ptr<float>() + x.numel()};
}
float scale_of(const Optimizer& optimizer) {
  return optimizer.variables()[1].value().item<float>();
}

class LossScaleUnder : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Strategies, LossScaleUnder, ::testing::Values(0, 1, 2));

// Keras 3.15: LossScaleOptimizer(SGD(0.5, momentum=0.5), initial_scale=1024,
// dynamic_growth_steps=2).stateless_apply for these gradients.
TEST_P(LossScaleUnder, StepsAndSkipsAsKeras) {
  struct Row {
    std::vector<float> gradient;
    float scale;
    int64_t counter, iterations;
    std::vector<float> weights;
  };
  const std::vector<Row> rows = {{{1024, 512}, 1024, 1, 1, {0.5, 1.75}},
                                 {{kInf, 1}, 512, 0, 1, {0.5, 1.75}},
                                 {{512, 512}, 512, 1, 2, {-0.25, 1.125}},
                                 {{256, 0}, 1024, 0, 3, {-0.875, 0.8125}},
                                 {{kNan, 2}, 512, 0, 3, {-0.875, 0.8125}},
                                 {{-512, 512}, 512, 1, 4, {-0.6875, 0.15625}},
                                 {{2048, 2048}, 1024, 0, 5, {-2.59375, -2.171875}}};
  const Strategy strategy = strategy_of(GetParam());
  auto scope = strategy.scope();
  const Variable v(from_vector<float>({1, 2}, {2}), {.name = "v"});
  const LossScaleOptimizer optimizer(SGD({.learning_rate = 0.5, .momentum = 0.5}),
                                     {.initial_scale = 1024, .dynamic_growth_steps = 2});
  for (const Row& row : rows) {
    strategy.run([&] {
      // Only the last replica has a gradient: what is not finite, the others do not see.
      const ReplicaContext here = get_replica_context();
      const bool last = here.replica_id_in_sync_group() == here.num_replicas_in_sync() - 1;
      const Tensor g = last ? from_vector<float>(row.gradient, {2}) : zeros({2}, kFloat32);
      optimizer.apply_gradients({{g, v}});
      EXPECT_EQ(floats(g)[1], last ? row.gradient[1] : 0);  // the caller's stay as they are
    });
    EXPECT_EQ(scale_of(optimizer), row.scale);
    EXPECT_EQ(optimizer.variables()[0].value().item<int64_t>(), row.counter);
    EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), row.iterations);
    for (const Variable& component : v.components()) {
      EXPECT_EQ(floats(component.value()), row.weights);
    }
  }
}

TEST_P(LossScaleUnder, ScaledLossesTrainAsUnscaled) {
  const Strategy strategy = strategy_of(GetParam());
  auto scope = strategy.scope();
  const auto trained = [&](const Optimizer& optimizer, bool minimizes) {
    const Variable v(from_vector<float>({1, 2}, {2}), {.name = "v"});
    const Variable w(from_vector<float>({3, 4}, {2}), {.name = "w"});
    const Variable u(from_vector<float>({5, 6}, {2}), {.name = "u"});
    for (int i = 0; i < 4; ++i) {
      strategy.run([&] {
        GradientTape tape;
        // Of w and u LibTorch may give the same gradient.
        const Tensor loss = (v.value() * v.value() + w.value() + u.value()).square().sum();
        if (minimizes) return optimizer.minimize(loss, std::vector{v, w, u}, tape);
        optimizer.apply_gradients(tape.gradient(optimizer.scale_loss(loss), {v, w, u}));
      });
    }
    std::vector<float> all;
    for (const Variable& x : {v, w, u}) {
      for (const float number : floats(x.value())) all.push_back(number);
    }
    return all;
  };
  const SGDOptions options{.learning_rate = 0.001, .gradient_accumulation_steps = 2};
  const auto expected = trained(SGD(options), true);
  EXPECT_NE(expected, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(trained(SGD(options), false), expected);
  EXPECT_EQ(trained(LossScaleOptimizer(SGD(options)), true), expected);
  EXPECT_EQ(trained(LossScaleOptimizer(SGD(options)), false), expected);
}

// Uneven: with two replicas the last step has a row for one of them.
TEST_P(LossScaleUnder, FitsInMixedFloat16) {
  set_seed(1);
  const Strategy strategy = strategy_of(GetParam());
  auto scope = strategy.scope();
  set_dtype_policy("mixed_float16");
  Sequential model(
      {InputLayer({2}), Dense(8, {.activation = "relu"}), Dense(1, {.dtype = kFloat32})});
  model.compile({.optimizer = Adam({.learning_rate = 0.05}), .loss = "mse"});
  Sequential plain({InputLayer({2}), Dense(1)});
  plain.compile({.optimizer = "adam", .loss = "mse", .auto_scale_loss = false});
  set_dtype_policy({});
  EXPECT_EQ(model.optimizer().base().class_name(), "LossScaleOptimizer");
  EXPECT_EQ(plain.optimizer().base().class_name(), "Adam");
  // As Keras: the optimizer that was given.
  EXPECT_EQ(model.get_compile_config().at("optimizer").text("class_name"), "Adam");
  EXPECT_FALSE(model.get_compile_config().contains("auto_scale_loss"));
  EXPECT_FALSE(plain.get_compile_config().boolean("auto_scale_loss"));
  const Tensor x = from_vector<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {5, 2}) / 10;
  const Tensor y = x.sum(1, true);
  const History history =
      model.fit(x, y, {.epochs = 20, .batch_size = 2, .verbose = Verbose::kSilent});
  EXPECT_LT(history["loss"].back(), history["loss"].front());
  EXPECT_EQ(scale_of(model.optimizer()), 32768);
  EXPECT_EQ(model.optimizer().iterations().value().item<int64_t>(), 60);
}

TEST_P(LossScaleUnder, AScaleThatIsTooHighComesDown) {
  const Strategy strategy = strategy_of(GetParam());
  auto scope = strategy.scope();
  Sequential model(
      {InputLayer({2}), Dense(4, {.dtype = "mixed_float16"}), Dense(1, {.dtype = kFloat32})});
  model.compile(
      {.optimizer = LossScaleOptimizer(SGD({.learning_rate = 0.01}), {.initial_scale = 1e10}),
       .loss = "mse"});
  const auto before = model.get_weights();
  const Tensor x = ones({4, 2}), y = ones({4, 1}) * 3;
  model.train_on_batch(x, y);
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(model.get_weights()[i].equal(before[i])) << i;
  }
  EXPECT_EQ(scale_of(model.optimizer()), 5e9F);
  EXPECT_EQ(model.optimizer().iterations().value().item<int64_t>(), 0);
  for (int i = 0; i < 40; ++i) model.train_on_batch(x, y);
  EXPECT_FALSE(model.get_weights()[0].equal(before[0]));
  EXPECT_LT(scale_of(model.optimizer()), 1e7F);
}

// In Keras's file: count and rate of its own, counter and scale, then all of the inner one, and
// that once more by itself. The program that reads it need not set the policy.
class LossScaleFile : public testing::FolderTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Strategies, LossScaleFile, ::testing::Values(0, 1, 2));

TEST_P(LossScaleFile, GoesOn) {
  const std::string file = path("m.keras");
  const Strategy strategy = strategy_of(GetParam());
  auto scope = strategy.scope();
  set_dtype_policy("mixed_float16");
  Sequential model({InputLayer({2}), Dense(1)});
  model.compile({.optimizer = Adam(), .loss = "mse"});
  set_dtype_policy({});
  const Tensor x = ones({4, 2}) / 10, y = ones({4, 1}) / 3;  // nothing overflows
  for (int i = 0; i < 3; ++i) model.train_on_batch(x, y);
  model.optimizer().variables()[1].assign(scalar(1024, kFloat32));
  EXPECT_EQ(model.optimizer().base().stored_variables().size(), 4U + 2 + 4);
  model.save(file);
  const auto loaded = load_model(file);
  EXPECT_EQ(loaded->optimizer().base().class_name(), "LossScaleOptimizer");
  EXPECT_EQ(scale_of(loaded->optimizer()), 1024);
  EXPECT_EQ(loaded->optimizer().variables()[0].value().item<int64_t>(), 3);
  model.train_on_batch(x, y);
  loaded->train_on_batch(x, y);
  // A slot or a count that was lost moves them by 1e-4.
  const Tensor parted = loaded->get_weights()[0] - model.get_weights()[0];
  EXPECT_LT(parted.abs().max().item<float>(), 1e-6);
}

using LossScaleFolder = testing::FolderTest;
TEST_F(LossScaleFolder, IsInCheckpoints) {
  const auto make = [](const Variable& v) {
    const LossScaleOptimizer optimizer(SGD({.momentum = 0.9}), {.initial_scale = 64});
    optimizer.apply_gradients({{full({2}, kInf), v}});
    optimizer.apply_gradients({{ones({2}), v}});
    return optimizer;
  };
  const Variable v(ones({2}), {.name = "v"});
  const Optimizer optimizer = make(v);
  EXPECT_EQ(scale_of(optimizer), 32);
  Checkpoint({{"v", v}, {"o", optimizer}}).save(path("c"));
  const Variable w(zeros({2}), {.name = "v"});
  const LossScaleOptimizer other(SGD({.momentum = 0.9}));
  Checkpoint({{"v", w}, {"o", other}}).restore(path("c"));
  other.build(std::vector{w});
  EXPECT_EQ(scale_of(other), 32);
  EXPECT_EQ(other.variables()[0].value().item<int64_t>(), 1);
  EXPECT_EQ(floats(other.variables().back().value()), floats(optimizer.variables().back().value()));
}

// An optimizer that is built by its first step takes what was restored from its first loss on.
TEST_F(LossScaleFolder, TheFirstStepAfterARestoreHasTheRestoredScale) {
  const auto loss_of = [](const Variable& v) { return v.value().square().sum(); };
  {
    const Variable v(ones({2}), {.name = "v"});
    const LossScaleOptimizer optimizer(SGD({.learning_rate = 0.125}), {.initial_scale = 64});
    optimizer.apply_gradients({{full({2}, kInf), v}});
    Checkpoint({{"v", v}, {"o", optimizer}}).save(path("c"));
  }
  for (const int replicas : {0, 1, 2}) {
    const Strategy strategy = strategy_of(replicas);
    auto scope = strategy.scope();
    for (const bool minimizes : {false, true}) {
      const Variable v(zeros({2}), {.name = "v"});
      const LossScaleOptimizer optimizer(SGD({.learning_rate = 0.125}));
      Checkpoint({{"v", v}, {"o", optimizer}}).restore(path("c"));
      strategy.run([&] {
        GradientTape tape;
        const Tensor loss = loss_of(v) / get_replica_context().num_replicas_in_sync();
        if (minimizes) return optimizer.minimize(loss, std::vector{v}, tape);
        optimizer.apply_gradients(tape.gradient(optimizer.scale_loss(loss), {v}));
      });
      EXPECT_EQ(scale_of(optimizer), 32) << replicas;
      EXPECT_EQ(floats(v.value()), (std::vector<float>{0.75, 0.75})) << replicas << minimizes;
    }
  }
}

TEST(LossScale, ConfigIsKeras) {
  const std::string keras =
      R"({"module": "keras.optimizers", "class_name": "LossScaleOptimizer", "config": )"
      R"({"name": "loss_scale_optimizer", "inner_optimizer": {"module": "keras.optimizers", )"
      R"("class_name": "SGD", "config": {"name": "sgd", "learning_rate": 0.5, )"
      R"("weight_decay": null, "clipnorm": null, "global_clipnorm": null, "clipvalue": null, )"
      R"("use_ema": false, "ema_momentum": 0.99, "ema_overwrite_frequency": null, )"
      R"("loss_scale_factor": null, "gradient_accumulation_steps": null, "momentum": 0.5, )"
      R"("nesterov": false}, "registered_name": null}, "initial_scale": 1024.0, )"
      R"("dynamic_growth_steps": 2}, "registered_name": null})";
  const Optimizer read = Optimizer::deserialize(Config::parse_json(keras));
  EXPECT_EQ(read.serialize().to_json(), keras);
  EXPECT_EQ(read.learning_rate(), 0.5);
  Config old = Config::parse_json(keras);
  old.at("config").set("use_ema", false).set("clipnorm", Config());
  EXPECT_EQ(Optimizer::deserialize(old).serialize().to_json(), keras);
  old.at("config").set("clipnorm", 1.0);
  testing::expect_error<InvalidArgument>({"clipnorm", "inner optimizer"},
                                         [&] { Optimizer::deserialize(old); });
}

TEST(LossScale, RefusesWhatItCannotScale) {
  EXPECT_THROW(LossScaleOptimizer{Optimizer()}, InvalidArgument);
  EXPECT_THROW((LossScaleOptimizer{SGD(), {.initial_scale = 0}}), InvalidArgument);
  EXPECT_THROW((LossScaleOptimizer{SGD(), {.initial_scale = kInf}}), InvalidArgument);
  EXPECT_THROW((LossScaleOptimizer{SGD(), {.dynamic_growth_steps = 0}}), InvalidArgument);
}

}  // namespace
}  // namespace cohort::keras
