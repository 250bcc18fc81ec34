// SPDX-License-Identifier: Apache-2.0
//
// fit, evaluate and predict, on one replica and on several: the numbers must be the same.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <thread>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/check.h"
#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/metrics/metrics.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using testing::strategy_of;

constexpr Verbose kSilent = Verbose::kSilent;

struct Data {
  Tensor x, y;
  Dataset dataset() const { return Dataset::from_tensor_slices({x, y}); }
};

// Rows of a plane, without noise.
Data plane(int64_t rows) {
  std::vector<float> x, y;
  for (int64_t i = 0; i < rows; ++i) {
    const float a = std::sin(static_cast<float>(3 * i)), b = std::cos(static_cast<float>(7 * i));
    x.insert(x.end(), {a, b});
    y.push_back(2 * a - 3 * b + 1);
  }
  return {from_vector(x, {rows, 2}), from_vector(y, {rows, 1})};
}

// Two classes on both sides of a line.
Data halves(int64_t rows) {
  const Data data = plane(rows);
  return {data.x, data.y.squeeze(1).gt(0).to(kInt64)};
}

class FitOn : public ::testing::TestWithParam<int> {
 protected:
  FitOn() { set_seed(1); }
  Strategy strategy_ = strategy_of(GetParam());
  int replicas() const { return strategy_.num_replicas_in_sync(); }
};
INSTANTIATE_TEST_SUITE_P(Replicas, FitOn, ::testing::Values(0, 1, 2, 3));

// Gradient descent on the mean squared error, by the formulas.
struct ByHand {
  Tensor kernel = zeros({2, 1}, kFloat64), bias = zeros({1}, kFloat64);
  double loss_sum = 0, rows = 0;
  void step(const Tensor& x, const Tensor& y, double rate) {
    const Tensor error = x.matmul(kernel) + bias - y;
    const auto n = static_cast<double>(x.size(0));
    loss_sum += error.pow(2).sum().item<double>();
    rows += n;
    kernel = kernel - x.t().matmul(error) * (2 * rate / n);
    bias = bias - error.sum(0) * (2 * rate / n);
  }
};

TEST_P(FitOn, GivesTheNumbersOfAHandWrittenLoop) {
  const Data data = plane(50);
  const auto scope = strategy_.scope();
  Sequential model({Dense(1, {.kernel_initializer = "zeros"})});
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse"});
  const History history = model.fit(data.dataset().batch(8), {.epochs = 3, .verbose = kSilent});

  ByHand hand;
  const Tensor x = data.x.to(kFloat64), y = data.y.to(kFloat64);
  std::vector<double> losses;
  for (int epoch = 0; epoch < 3; ++epoch) {
    hand.loss_sum = hand.rows = 0;
    for (int64_t row = 0; row < 50; row += 8) {  // the last batch has 2 rows
      const int64_t n = std::min<int64_t>(8, 50 - row);
      hand.step(x.narrow(0, row, n), y.narrow(0, row, n), 0.1);
    }
    losses.push_back(hand.loss_sum / hand.rows);
  }
  EXPECT_EQ(history.epoch, (std::vector<int>{0, 1, 2}));
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_NEAR(history.history.at("loss")[epoch], losses[epoch], 1e-5 * losses[epoch]);
  }
  const std::vector<Tensor> weights = model.get_weights();
  EXPECT_LT((weights[0].to(kFloat64) - hand.kernel).norm().item<double>(), 1e-5);
  EXPECT_LT((weights[1].to(kFloat64) - hand.bias).norm().item<double>(), 1e-5);
}

TEST_P(FitOn, LearnsToClassifyAndReportsMetrics) {
  const Data data = halves(200);
  std::optional<Sequential> model;
  {
    const auto scope = strategy_.scope();
    model.emplace(std::vector<Layer>{Dense(8, {.activation = "relu"}), Dense(2)});
    model->compile({.optimizer = "adam",
                    .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                    .metrics = {"accuracy", SparseCategoricalAccuracy("sparse")}});
  }
  // Outside of the scope, as programs may.
  const History history =
      model->fit(data.x, data.y, {.epochs = 60, .batch_size = 16, .verbose = kSilent});
  const auto& loss = history.history.at("loss");
  EXPECT_LT(loss.back(), 0.5 * loss.front());
  EXPECT_GT(history.history.at("accuracy").back(), 0.9);
  EXPECT_EQ(history.history.at("accuracy"), history.history.at("sparse"));
  const Logs logs = model->evaluate(data.x, data.y, {.verbose = kSilent});
  EXPECT_EQ(logs.names(), (std::vector<std::string>{"accuracy", "loss", "sparse"}));
  const Tensor right = model->predict(data.x, {.verbose = kSilent}).argmax(-1).eq(data.y);
  EXPECT_NEAR(logs.number("accuracy"), right.to(kFloat64).mean().item<double>(), 1e-9);
}

// One step at rate 1 on rows of the unit matrix: what each example's gradient counts.
std::vector<float> example_weights(const Strategy& strategy, int64_t rows, CompileOptions options,
                                   const Tensor& weight = {},
                                   const std::map<int64_t, double>& class_weight = {}) {
  const auto scope = strategy.scope();
  Sequential model({Dense(1, {.use_bias = false, .kernel_initializer = "zeros"})});
  options.optimizer = SGD({.learning_rate = 1});
  if (!options.loss) options.loss = [](const Tensor&, const Tensor& p) { return p.squeeze(-1); };
  model.compile(std::move(options));
  const Tensor x = at::Tensor(arange(rows).unsqueeze(1).eq(arange(rows)).to(kFloat32));
  const Tensor y = arange(rows);
  const Dataset data = weight.defined() ? Dataset::from_tensor_slices({x, y, weight})
                                        : Dataset::from_tensor_slices({x, y});
  model.fit(data.batch(4), {.verbose = kSilent, .class_weight = class_weight});
  return to_vector<float>(-model.get_weights()[0]);
}

TEST(FitUneven, EveryExampleCountsTheSame) {
  const Strategy two = strategy_of(2);
  for (float w : example_weights(two, 3, {})) EXPECT_NEAR(w, 1.0 / 3, 1e-6);
  const auto as_tensorflow = example_weights(two, 3, {.exact_uneven_batches = false});
  EXPECT_NEAR(as_tensorflow[0], 0.25, 1e-6);
  EXPECT_NEAR(as_tensorflow[1], 0.25, 1e-6);
  EXPECT_NEAR(as_tensorflow[2], 0.5, 1e-6);
}

TEST(FitUneven, AnEmptyReplicaAddsNothing) {
  const auto weights = example_weights(strategy_of(3), 1, {});
  ASSERT_EQ(weights.size(), 1u);
  EXPECT_NEAR(weights[0], 1, 1e-6);
}

TEST_P(FitOn, SampleAndClassWeightsMultiply) {
  const auto plain = example_weights(strategy_, 4, {}, tensor({1, 2, 3, 4}));
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(plain[i], 0.25 * (i + 1), 1e-6);
  const auto both = example_weights(strategy_, 4, {}, tensor({1, 2, 3, 4}), {{1, 10}, {2, 0}});
  EXPECT_NEAR(both[0], 0.25, 1e-6);
  EXPECT_NEAR(both[1], 5, 1e-6);
  EXPECT_NEAR(both[2], 0, 1e-6);
  EXPECT_NEAR(both[3], 1, 1e-6);
  const Tensor column = tensor({1, 2, 3, 4}).unsqueeze(1);
  EXPECT_EQ(example_weights(strategy_, 4, {}, column, {{1, 10}, {2, 0}}), both);
}

// As Keras, which rounds labels; one that has no weight counts once, also the -1 that is ignored.
TEST_P(FitOn, ClassWeightsAreThoseOfTheNearestClass) {
  const auto scope = strategy_.scope();
  Sequential model({Dense(1, {.use_bias = false, .kernel_initializer = "zeros"})});
  model.compile({.optimizer = SGD({.learning_rate = 1}),
                 .loss = [](const Tensor&, const Tensor& p) { return p.squeeze(-1); }});
  const Tensor x = at::Tensor(arange(4).unsqueeze(1).eq(arange(4)).to(kFloat32));
  model.fit(Dataset::from_tensor_slices({x, tensor({0.1, 0.9, -1, 7})}).batch(4),
            {.verbose = kSilent, .class_weight = {{0, 2}, {1, 4}}});
  const std::vector<float> weights = to_vector<float>(-model.get_weights()[0] * 4);
  EXPECT_EQ(weights, (std::vector<float>{2, 4, 1, 1}));
}

TEST_P(FitOn, ClassWeightsHoldForEveryStepOfASequence) {
  const auto scope = strategy_.scope();
  Sequential model({Dense(1, {.use_bias = false, .kernel_initializer = "zeros"})});
  model.compile({.optimizer = SGD({.learning_rate = 1}),
                 .loss = [](const Tensor&, const Tensor& p) { return p.squeeze(-1); }});
  const Tensor rows = arange(8).unsqueeze(1);
  const Tensor x = at::Tensor(rows.eq(arange(8)).to(kFloat32)).reshape({4, 2, 8});
  const Tensor labels = at::Tensor(rows.remainder(2).eq(arange(3)).to(kFloat32));
  const Tensor y = labels.reshape({4, 2, 3});  // classes 0, 1, 0, 1, ...
  model.fit(Dataset::from_tensor_slices({x, y, tensor({1, 2, 3, 4})}).batch(4),
            {.verbose = kSilent, .class_weight = {{1, 10}}});
  const std::vector<float> weights = to_vector<float>(-model.get_weights()[0]);
  for (int i = 0; i < 8; ++i) {
    const int sample_weight = i / 2 + 1;
    EXPECT_NEAR(weights[i], sample_weight * (i % 2 == 1 ? 10 : 1) / 8.0, 1e-5) << i;
  }
}

TEST_P(FitOn, MeansOverWeightsAreThoseOfAllReplicas) {
  const auto identity = [](const Tensor&, const Tensor& p) { return p.squeeze(-1); };
  const Loss loss(identity, Reduction::kMeanWithSampleWeight);
  for (float w : example_weights(strategy_, 4, {.loss = loss})) EXPECT_NEAR(w, 0.25, 1e-6);
  const auto weighted = [&] {
    return example_weights(strategy_, 4, {.loss = loss}, tensor({1, 2, 3, 4}));
  };
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(weighted()[i], (i + 1) / 10.0, 1e-6);
}

TEST_P(FitOn, SumAndNoneReductionsAreNotScaled) {
  const auto identity = [](const Tensor&, const Tensor& p) { return p.squeeze(-1); };
  for (Reduction reduction : {Reduction::kSum, Reduction::kNone}) {
    const auto weights = example_weights(strategy_, 4, {.loss = Loss(identity, reduction)});
    for (float w : weights) EXPECT_NEAR(w, 1, 1e-6);
  }
}

// v, and a penalty of v.
struct Shift : LayerBase {
  Variable v;
  void build(const Shape&) override {
    v = add_weight(
        {.name = "v", .shape = {1}, .initializer = "ones", .regularizer = [](const Tensor& x) {
           return x.sum();
         }});
  }
  Tensor call(const Tensor& x, const CallArgs&) override { return x * 0 + v; }
  std::string class_name() const override { return "Shift"; }
};

TEST_P(FitOn, PenaltiesCountOnceWhateverTheReplicas) {
  const auto scope = strategy_.scope();
  Sequential model({std::make_shared<Shift>()});
  model.compile({.optimizer = SGD({.learning_rate = 1}),
                 .loss = [](const Tensor&, const Tensor& p) { return 1 + p.squeeze(-1); }});
  const Tensor x = ones({2, 1});
  const History history = model.fit(x, x, {.batch_size = 2, .verbose = kSilent});
  EXPECT_NEAR(model.get_weights()[0].item<double>(), -1, 1e-6);
  EXPECT_NEAR(history.history.at("loss")[0], 3, 1e-6);
}

TEST_P(FitOn, EvaluatesTheMeanOverAllRows) {
  const auto scope = strategy_.scope();
  Sequential model({Flatten()});
  model.compile({.loss = [](const Tensor&, const Tensor& p) { return p.squeeze(-1); }});
  const Tensor x = arange(7, kFloat32).unsqueeze(1);
  EXPECT_NEAR(model.evaluate(x, x, {.batch_size = 2, .verbose = kSilent}).number("loss"), 3, 1e-6);
  EXPECT_NEAR(
      model.evaluate(x, x, {.batch_size = 2, .steps = 2, .verbose = kSilent}).number("loss"), 1.5,
      1e-6);
}

TEST_P(FitOn, PredictsARowForEachRowInTheirOrder) {
  const auto scope = strategy_.scope();
  Sequential model({Rescaling(2)});
  const Tensor x = arange(10, kFloat32).unsqueeze(1);
  EXPECT_TRUE(model.predict(x, {.batch_size = 4, .verbose = kSilent}).equal(x * 2));
  const Dataset pairs = Dataset::from_tensor_slices({x, x}).batch(3);
  EXPECT_TRUE(model.predict(pairs, {.verbose = kSilent}).equal(x * 2));
  EXPECT_EQ(model.predict(pairs, {.steps = 2, .verbose = kSilent}).size(0), 6);
}

TEST_P(FitOn, ValidatesWithTheWeightsOfTheEpoch) {
  const auto scope = strategy_.scope();
  Sequential model = Sequential({Dense(1)});
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse", .metrics = {"mae"}});
  const Data data = plane(40), other = plane(13);
  const History history =
      model.fit(data.dataset().batch(8), {.epochs = 4,
                                          .validation_data = other.dataset().batch(5),
                                          .verbose = kSilent,
                                          .validation_freq = 2});
  EXPECT_EQ(history.history.at("loss").size(), 4u);
  ASSERT_EQ(history.history.at("val_loss").size(), 2u);
  EXPECT_EQ(history.history.at("val_mae").size(), 2u);
  const Logs now = model.evaluate(other.x, other.y, {.verbose = kSilent});
  EXPECT_NEAR(now.number("loss"), history.history.at("val_loss")[1], 1e-6);
  EXPECT_NEAR(now.number("mae"), history.history.at("val_mae")[1], 1e-6);
}

TEST(Fit, SplitsTheLastPartOfArraysOffForValidation) {
  Sequential model({Dense(1, {.kernel_initializer = "zeros"})});
  model.compile({.optimizer = SGD({.learning_rate = 0.0}), .loss = "mse"});
  const Tensor x = zeros({10, 1}), y = arange(10, kFloat32).unsqueeze(1);
  const History history =
      model.fit(x, y, {.batch_size = 4, .verbose = kSilent, .validation_split = 0.2});
  EXPECT_NEAR(history.history.at("val_loss")[0], (64 + 81) / 2.0, 1e-4);
  EXPECT_NEAR(history.history.at("loss")[0], 140 / 8.0, 1e-4);
}

// As Keras 3: each step's own numbers.
TEST_P(FitOn, TrainsOnOneBatchAndForgetsTheLast) {
  const auto scope = strategy_.scope();
  Sequential model({Dense(1, {.kernel_initializer = "zeros"})});
  model.compile({.optimizer = SGD({.learning_rate = 0.0}), .loss = "mse"});
  const Tensor x = ones({3, 1});
  EXPECT_NEAR(model.train_on_batch(x, x).number("loss"), 1, 1e-6);
  EXPECT_NEAR(model.train_on_batch(x, x * 2).number("loss"), 4, 1e-6);
  EXPECT_NEAR(model.test_on_batch(x, x * 3).number("loss"), 9, 1e-6);
}

// A model of one's own, with a step of one's own.
struct Net : Model {
  Dense hidden = add("hidden", Dense(4, {.activation = "relu"}));
  Dense out = add("out", Dense(1));
  Tensor call(const Tensor& x, const CallArgs& args) override { return out(hidden(x, args), args); }
  Logs train_step(const Element& batch) override {
    const auto [x, y, w] = unpack_x_y_sample_weight(batch);
    GradientTape tape;
    const Tensor y_pred = (*this)(x, {.training = true});
    const Tensor loss = compute_loss(x, y, y_pred, w);
    optimizer().apply_gradients(
        clip_by_global_norm(tape.gradient(loss, trainable_variables()), 1.0));
    Logs logs = compute_metrics(x, y, y_pred, w);
    logs.set("rows", static_cast<double>(x.size(0)));
    return logs;
  }
};

TEST_P(FitOn, RunsASubclassWithItsOwnStep) {
  const auto scope = strategy_.scope();
  Net net;
  net.compile({.optimizer = Adam({.learning_rate = 0.05}), .loss = "mse", .metrics = {"mae"}});
  EXPECT_EQ(net.name().substr(0, 3), "net");
  const History history =
      net.fit(plane(60).dataset().batch(12), {.epochs = 20, .verbose = kSilent});
  EXPECT_LT(history.history.at("loss").back(), 0.5 * history.history.at("loss").front());
  EXPECT_EQ(history.history.at("mae").size(), 20u);
  // What is no metric is the mean of the replicas' last step.
  EXPECT_NEAR(history.history.at("rows").back(), 12.0 / replicas(), 1e-6);
  EXPECT_EQ(net.variables()[0].name(), "hidden/kernel");
  EXPECT_EQ(net.optimizer().iterations().value().item<int64_t>(), 100);
}

TEST_P(FitOn, ValidationStepsCountFromTheStartOfTheData) {
  const auto scope = strategy_.scope();
  Sequential model({Dense(1, {.kernel_initializer = "zeros"})});
  model.compile({.optimizer = SGD({.learning_rate = 0.0}), .loss = "mse"});
  const Tensor x = ones({10, 1}), y = arange(10, kFloat32).unsqueeze(1);
  const Dataset ten = Dataset::from_tensor_slices({x, y}).batch(1);
  for (const int64_t steps : {10, 4}) {
    const History history = model.fit(
        ten, {.epochs = 2, .validation_data = ten, .verbose = kSilent, .validation_steps = steps});
    const double expected = y.narrow(0, 0, steps).pow(2).mean().item<double>();
    ASSERT_EQ(history.epoch.size(), 2u);
    for (const double loss : history.history.at("val_loss")) EXPECT_NEAR(loss, expected, 1e-5);
  }
}

TEST(Fit, StartsAtAnInitialEpochAndHonoursTheEnvironment) {
  Sequential model({Dense(1)});
  model.compile({.loss = "mse"});
  const Dataset data = plane(20).dataset().batch(2);
  EXPECT_EQ(model.fit(data, {.epochs = 4, .verbose = kSilent, .initial_epoch = 2}).epoch,
            (std::vector<int>{2, 3}));
  ::setenv("KERAS_MAX_EPOCHS", "2", 1);
  ::setenv("KERAS_MAX_STEPS_PER_EPOCH", "3", 1);
  const auto before = model.optimizer().iterations().value().item<int64_t>();
  EXPECT_EQ(model.fit(data, {.epochs = 9, .verbose = kSilent}).epoch.size(), 2u);
  EXPECT_EQ(model.optimizer().iterations().value().item<int64_t>() - before, 6);
  ::setenv("KERAS_MAX_EPOCHS", "many", 1);
  EXPECT_THROW(model.fit(data, {.verbose = kSilent}), InvalidArgument);
  ::unsetenv("KERAS_MAX_EPOCHS");
  ::unsetenv("KERAS_MAX_STEPS_PER_EPOCH");
}

TEST(Fit, SaysWhatIsWrong) {
  Sequential model({Dense(1)});
  const Data data = plane(8);
  const Dataset batches = data.dataset().batch(2);
  EXPECT_THROW(model.fit(batches), FailedPrecondition);
  EXPECT_THROW(model.evaluate(batches), FailedPrecondition);
  EXPECT_THROW(model.train_on_batch(data.x, data.y), FailedPrecondition);
  model.compile({.loss = "mse"});
  const FitOptions quiet = {.verbose = kSilent};
  EXPECT_THROW(model.fit(batches.repeat(), quiet), InvalidArgument);
  EXPECT_THROW(model.fit(batches.take(0), quiet), InvalidArgument);
  EXPECT_THROW(model.fit(batches, {.epochs = 1, .verbose = kSilent, .initial_epoch = 2}),
               InvalidArgument);
  EXPECT_THROW(model.fit(batches, {.verbose = kSilent, .steps_per_epoch = 0}), InvalidArgument);
  EXPECT_THROW(model.fit(batches, {.verbose = kSilent, .validation_split = 0.5}), InvalidArgument);
  EXPECT_THROW(model.fit(batches, {.verbose = kSilent, .validation_freq = 0}), InvalidArgument);
  EXPECT_THROW(model.fit(data.x, data.y.narrow(0, 0, 7), quiet), InvalidArgument);
  EXPECT_THROW(model.fit(Dataset::from_tensor_slices(data.x).batch(2), quiet), InvalidArgument);
  const Dataset four = Dataset::from_tensor_slices({data.x, data.y, data.y, data.y}).batch(2);
  EXPECT_THROW(model.fit(four, quiet), InvalidArgument);
  EXPECT_THROW(model.compile({.loss = "mse", .steps_per_execution = 0}), InvalidArgument);
  const std::string text = testing::error_text<InvalidArgument>(
      [&] { model.test_on_batch(data.x.narrow(0, 0, 0), data.y.narrow(0, 0, 0)); });
  EXPECT_EQ(text.find("[test_on_batch]"), 0u) << text;
  EXPECT_NO_THROW(model.fit(batches, quiet)) << "errors must not spoil the model";
}

TEST(Fit, ChecksStepsThatItCannotKnow) {
  const Strategy two = strategy_of(2);
  const auto scope = two.scope();
  Sequential model({Dense(1)});
  model.compile({.loss = "mse", .steps_per_execution = 20});
  const Dataset unknown = plane(8).dataset().filter([](const Element&) { return true; }).batch(2);
  EXPECT_THROW(model.fit(unknown, {.verbose = kSilent}), InvalidArgument);
  model.compile({.loss = "mse"});
  EXPECT_NO_THROW(model.fit(unknown, {.epochs = 2, .verbose = kSilent}));
  const DistributedDataset distributed = two.distribute_dataset(plane(8).dataset().batch(4));
  EXPECT_THROW(model.fit(distributed, {.verbose = kSilent}), InvalidArgument);
  EXPECT_NO_THROW(model.fit(distributed, {.verbose = kSilent, .steps_per_epoch = 2}));
}

TEST(Fit, RefusesWhatWasMadeUnderAnotherStrategy) {
  const Strategy two = strategy_of(2);
  const SparseCategoricalAccuracy outside;
  const auto scope = two.scope();
  Sequential model({Dense(1)});
  EXPECT_THROW(model.compile({.loss = "mse", .metrics = {outside}}), InvalidArgument);
  std::jthread([&] {  // a thread of its own: this one is in the scope of `two`
    const Strategy other = strategy_of(2);
    const auto inner = other.scope();
    testing::expect_error<FailedPrecondition>(
        {"used in, " + other.extended().description(), "under " + two.extended().description()},
        [&] { model.compile({.loss = "mse"}); });
    EXPECT_NE(other.extended().description(), two.extended().description());
  });
}

struct Interrupter : CallbackBase {
  int64_t at = 2;
  bool trained = false, ended = false, epoch_ended = false;
  void on_train_batch_end(int64_t step, Logs&) override {
    if (step == at) ::raise(SIGINT);
  }
  void on_epoch_end(int, Logs&) override { epoch_ended = true; }
  void on_train_end() override { ended = true; }
};

volatile std::sig_atomic_t g_own_handler = 0;

TEST_P(FitOn, CtrlCEndsItAfterTheStep) {
  const auto before = std::signal(SIGINT, [](int) { g_own_handler = g_own_handler + 1; });
  const auto scope = strategy_.scope();
  Sequential model({Dense(1)});
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse"});
  const auto callback = std::make_shared<Interrupter>();
  const Dataset data = plane(40).dataset().batch(4);
  const History history = model.fit(data, {.epochs = 3,
                                           .callbacks = {callback},
                                           .verbose = kSilent,
                                           .on_interrupt = OnInterrupt::kReturn});
  EXPECT_TRUE(history.interrupted);
  EXPECT_TRUE(history.epoch.empty());
  EXPECT_TRUE(callback->ended);
  EXPECT_FALSE(callback->epoch_ended);
  EXPECT_EQ(model.optimizer().iterations().value().item<int64_t>(), 3);
  EXPECT_EQ(g_own_handler, 0);
  ::raise(SIGINT);  // the program's own handler is back
  EXPECT_EQ(g_own_handler, 1);
  g_own_handler = 0;
  std::signal(SIGINT, before);
  EXPECT_FALSE(model.fit(data, {.verbose = kSilent}).interrupted);
}

TEST_P(FitOn, AThrowingStepLeavesTheModelUsable) {
  const auto scope = strategy_.scope();
  Sequential model({Dense(1)});
  bool fail = true;
  const std::function<Tensor(const Tensor&, const Tensor&)> loss = [&](const Tensor& y,
                                                                       const Tensor& p) {
    if (fail) throw Cancelled("on purpose");
    return (y - p).pow(2).mean(-1);
  };
  model.compile({.loss = loss});
  const Dataset data = plane(12).dataset().batch(6);
  EXPECT_THROW(model.fit(data, {.verbose = kSilent}), Cancelled);
  fail = false;
  EXPECT_EQ(model.fit(data, {.verbose = kSilent}).epoch.size(), 1u);
}

}  // namespace
}  // namespace cohort::keras
