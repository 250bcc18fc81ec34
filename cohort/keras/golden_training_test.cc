// SPDX-License-Identifier: Apache-2.0
//
// Losses, metrics, optimizers, ... against real Keras: golden/losses.json and metrics.json, which
// golden/write_losses_metrics.py writes, and optimizers.json.
#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/modules.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_golden.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/keras/utils.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::testing::expect_error;
using cohort::testing::strategy_of;

Config golden_file(const std::string& name) {
  return testing::read_golden(std::string(COHORT_GOLDEN) + "/" + name);
}

Tensor tensor_of(const Config& config) {
  if (config.is_null()) return {};
  Shape shape;
  for (const Config& size : config.at("shape").list()) shape.push_back(size.integer());
  std::vector<double> data;
  for (const Config& x : config.at("data").list()) data.push_back(x.number());
  return from_vector(data, shape).to(ConfigValue<DType>::read(config.at("dtype")));
}

::testing::AssertionResult close(const Tensor& got, const Tensor& want, double tolerance = 1e-5) {
  if (got.sizes() != want.sizes()) {
    return ::testing::AssertionFailure() << "shape " << got.sizes() << ", not " << want.sizes();
  }
  const Tensor a = got.detach().to(kFloat64), b = want.to(kFloat64);
  const Tensor far = (a - b).abs() > tolerance * (b.abs() + 1);
  if (!far.any().item<bool>() && !a.isnan().any().item<bool>()) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "\n" << a << "\nexpected\n" << b;
}

TEST(GoldenLosses, ValuesGradientsAndConfigsAreKeras) {
  const Config cases = golden_file("losses.json");
  for (const Config& one : cases.list()) {
    SCOPED_TRACE(one.at("config").to_json());
    const Loss loss = Loss::deserialize(one.at("config"));
    EXPECT_EQ(loss.serialize(), one.at("config"));
    const Tensor p = tensor_of(one.at("y_pred")).requires_grad_();
    const Tensor value = loss(tensor_of(one.at("y_true")), p, tensor_of(one.at("weight")));
    EXPECT_TRUE(close(value, tensor_of(one.at("value"))));
    (value * tensor_of(one.at("cotangent"))).sum().backward();
    EXPECT_TRUE(close(p.grad(), tensor_of(one.at("gradient")), 2e-5));
  }
}

TEST(GoldenLosses, FunctionsAreTheLossesOfEachExample) {
  const Tensor y = tensor({0, 1, 1, 0, 0, 1}).view({2, 3});
  const Tensor p = tensor({0.1F, 0.7F, 0.2F, 0.5F, 0.25F, 0.25F}).view({2, 3});
  const Reduction none = Reduction::kNone;
  EXPECT_TRUE(
      close(losses::binary_crossentropy(y, p), BinaryCrossentropy({.reduction = none})(y, p)));
  EXPECT_TRUE(close(losses::categorical_crossentropy(y, p),
                    CategoricalCrossentropy({.reduction = none})(y, p)));
  EXPECT_TRUE(close(losses::sparse_categorical_crossentropy(tensor({1, 0}), p),
                    SparseCategoricalCrossentropy({.reduction = none})(tensor({1, 0}), p)));
  EXPECT_TRUE(close(losses::huber(y, p, 0.25), Huber({.delta = 0.25, .reduction = none})(y, p)));
  EXPECT_TRUE(close(losses::cosine_similarity(y, p, 0),
                    CosineSimilarity({.axis = 0, .reduction = none})(y, p)));
}

TEST(Losses, WhatDoesNotFitIsSaid) {
  expect_error<InvalidArgument>({"ctc", "y_true"}, [] { CTC()(zeros({2}), ones({2, 3, 4})); });
  expect_error<InvalidArgument>({"ctc", "labels in [0, 4)"}, [] {
    CTC()(full({2, 2}, 7, kInt64), ones({2, 3, 4}));
  });
  expect_error<InvalidArgument>({"circle", "embeddings"}, [] {
    Circle()(zeros({3}), ones({2, 4}));
  });
  expect_error<InvalidArgument>({"q in (0, 1)"},
                                [] { CategoricalGeneralizedCrossEntropy({.q = 1}); });
  expect_error<InvalidArgument>({"poisson", "[2, 3]"}, [] {
    Poisson()(ones({3, 2}), ones({2, 3}));
  });
  expect_error<InvalidArgument>({"sparse", "labels of shape"}, [] {
    SparseCategoricalCrossentropy({.ignore_class = 1})(zeros({3}), ones({2, 3}));
  });
}

// Rows that nothing is similar to, or everything, have no loss, and no gradient that is no number.
TEST(Losses, CircleWithoutPairsHasNoGradient) {
  const Tensor p = tensor({1, 0, 0, 1}).view({2, 2}).requires_grad_();
  for (const Tensor& labels : {tensor({0, 1}), tensor({1, 1})}) {
    const Tensor value = Circle()(labels, p);
    EXPECT_EQ(value.item<double>(), 0);
    value.backward();
    EXPECT_FALSE(p.grad().isnan().any().item<bool>());
  }
}

const char* name_of(Direction direction) {
  return direction == Direction::kUp ? "up" : direction == Direction::kDown ? "down" : "";
}

struct Update {
  Tensor y_true, y_pred, weight;
};
std::vector<Update> updates_of(const Config& one) {
  std::vector<Update> all;
  for (const Config& u : one.at("updates").list()) {
    all.push_back(
        {tensor_of(u.at("y_true")), tensor_of(u.at("y_pred")), tensor_of(u.at("weight"))});
  }
  return all;
}

TEST(GoldenMetrics, ResultsDirectionsAndConfigsAreKeras) {
  const Config cases = golden_file("metrics.json");
  for (const Config& one : cases.list()) {
    SCOPED_TRACE(one.at("config").to_json());
    const Metric metric = Metric::deserialize(one.at("config"));
    EXPECT_EQ(metric.serialize(), one.at("config"));
    const Config& direction = one.at("direction");
    EXPECT_EQ(name_of(metric.direction()), direction.is_null() ? "" : direction.text());
    for (int round = 0; round < 2; ++round) {
      std::size_t i = 0;
      for (const Update& u : updates_of(one)) {
        SCOPED_TRACE(i);
        metric.update_state(u.y_true, u.y_pred, u.weight);
        EXPECT_TRUE(close(metric.result(), tensor_of(one.at("results").list()[i++]), 2e-5));
      }
      metric.reset_state();
    }
  }
}

// What two replicas have counted is what one has that saw all, whichever saw which batch.
TEST(GoldenMetrics, ReplicasCountTogether) {
  const Strategy strategy = strategy_of(2);
  const Config cases = golden_file("metrics.json");
  for (const Config& one : cases.list()) {
    SCOPED_TRACE(one.at("config").to_json());
    const auto scope = strategy.scope();
    const Metric metric = Metric::deserialize(one.at("config"));
    const std::vector<Update> updates = updates_of(one);
    // Behind a batch for both, lest one of them waits for the other to make the sums.
    const Update& first = updates.front();
    strategy.run([&] {
      const int replica = get_replica_context().replica_id_in_sync_group();
      metric.base().ensure_built(shape_of(first.y_true), shape_of(first.y_pred));
      for (std::size_t i = 0; i < updates.size(); ++i) {
        const Update& u = updates[i];
        if (static_cast<int>(i % 2) == replica) metric.update_state(u.y_true, u.y_pred, u.weight);
      }
    });
    EXPECT_TRUE(close(metric.result(), tensor_of(one.at("results").list().back()), 2e-5));
  }
}

TEST(Metrics, WhatDoesNotFitIsSaid) {
  expect_error<InvalidArgument>({"auc", "curve", "\"roq\""}, [] { AUC({.curve = "roq"}); });
  expect_error<InvalidArgument>({"auc", "num_thresholds", "1"}, [] { AUC({.num_thresholds = 1}); });
  expect_error<InvalidArgument>({"auc", "num_thresholds", "1099511627776"},
                                [] { AUC({.num_thresholds = int64_t{1} << 40}); });
  expect_error<InvalidArgument>({"precision", "[0, 1]", "1.5"},
                                [] { Precision({.thresholds = 1.5}); });
  expect_error<InvalidArgument>({"f1_score", "average"}, [] { F1Score({.average = "mean"}); });
  expect_error<InvalidArgument>({"io_u", "target_class_ids", "[0, 2)"}, [] { IoU(2, {2}); });
  // As a file may say it.
  for (const char* name : {"MeanIoU", "OneHotMeanIoU"}) {
    const Config huge = Config::object({{"module", "keras.metrics"},
                                        {"class_name", name},
                                        {"config", Config::object({{"num_classes", 4e12}})}});
    expect_error<InvalidArgument>({"num_classes", "32768"}, [&] { Metric::deserialize(huge); });
  }
  expect_error<InvalidArgument>({"sensitivity_at_specificity", "[0, 1]"},
                                [] { SensitivityAtSpecificity(2); });
  expect_error<InvalidArgument>({"f1_score", "[b, classes]"},
                                [] { F1Score().update_state(ones({3}), ones({3})); });
  expect_error<InvalidArgument>({"auc", "label_weights"}, [] {
    AUC({.label_weights = {1, 2}}).update_state(ones({2, 3}), ones({2, 3}));
  });
  expect_error<InvalidArgument>({"recall", "sample weights"}, [] {
    Recall().update_state(ones({2, 3}), ones({2, 3}), ones({3, 3}));
  });
}

Sequential small_net(const std::vector<Metric>& metrics) {
  Sequential model({InputLayer({4}), Dense(3, {.activation = "softmax"})});
  model.compile({.loss = "categorical_crossentropy", .metrics = metrics});
  return model;
}

class MetricsInFit : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, MetricsInFit, ::testing::Values(0, 1, 2));

// Functions, names of classes and metrics that wait for shapes become metrics in the model's scope.
TEST_P(MetricsInFit, FunctionsNamesAndLateStateCount) {
  const Strategy strategy = strategy_of(GetParam());
  const auto greatest = [](const Tensor&, const Tensor& p) -> Tensor { return p.amax(-1); };
  Sequential model = [&] {
    const auto scope = strategy.scope();
    return small_net({Metric(greatest, "greatest"), "auc", "f1_score",
                      F1Score({.average = "macro", .name = "f1"}),
                      MeanMetricWrapper(greatest, "same"), R2Score()});
  }();
  const Tensor x = arange(32).view({8, 4}).to(kFloat32) / 32;
  const Tensor y = one_hot(tensor({0, 1, 2, 0, 1, 2, 0, 1}).to(kInt64), 3);
  const History history =
      model.fit(x, y, {.epochs = 2, .batch_size = 4, .verbose = Verbose::kSilent});
  const Logs logs = model.evaluate(x, y, {.batch_size = 4, .verbose = Verbose::kSilent});
  const Tensor p = model.predict(x, {.batch_size = 8, .verbose = Verbose::kSilent});
  const F1Score f1({.average = "macro"});
  const AUC auc;
  f1.update_state(y, p);
  auc.update_state(y, p);
  EXPECT_NEAR(logs.number("greatest"), p.amax(-1).mean().item<double>(), 1e-6);
  EXPECT_NEAR(logs.number("same"), logs.number("greatest"), 1e-9);
  EXPECT_NEAR(logs.number("f1"), f1.result().item<double>(), 1e-6);
  EXPECT_NEAR(logs.number("auc"), auc.result().item<double>(), 1e-6);
  EXPECT_EQ(logs.value("f1_score").sizes(), (Shape{3}));  // one for each class; its number the mean
  EXPECT_NEAR(logs.number("f1_score"), logs.number("f1"), 1e-6);
  EXPECT_EQ(history["f1"].size(), 2U);
}

TEST(MetricsInCompile, FunctionsHaveNoConfig) {
  const Metric function([](const Tensor& y, const Tensor& p) -> Tensor { return (y - p).abs(); });
  expect_error<Unimplemented>({"function", "config"}, [&] { function.serialize(); });
  expect_error<FailedPrecondition>({"function", "MeanMetricWrapper"}, [&] { function.result(); });
  expect_error<Unimplemented>({"gap", "config"}, [] {
    MeanMetricWrapper([](const Tensor& y, const Tensor&) -> Tensor { return y; }, "gap")
        .get_config();
  });
}

TEST(MetricsInCompile, ALossCountsEachExampleOnceOverReplicas) {
  const Tensor x = arange(40, kFloat32).view({10, 4}) / 40,
               y = one_hot(arange(10).remainder(3), 3).to(kFloat32);
  const Strategy strategy = strategy_of(2);
  const auto scope = strategy.scope();
  Sequential model = small_net({Loss("mse"), losses::MeanAbsoluteError()});
  const History history = model.fit(x, y, {.batch_size = 4, .verbose = Verbose::kSilent});
  const Logs logs = model.evaluate(x, y, {.batch_size = 4, .verbose = Verbose::kSilent});
  const Tensor p = model.predict(x, {.verbose = Verbose::kSilent});
  EXPECT_EQ(history["mean_absolute_error"].size(), 1U);
  EXPECT_NEAR(logs.number("mean_squared_error"), (p - y).square().mean().item<double>(), 1e-6);
  expect_error<InvalidArgument>({"ignore_class"}, [] {
    return Metric(losses::SparseCategoricalCrossentropy({.ignore_class = 1}));
  });
  expect_error<InvalidArgument>({"empty"}, [] { return Metric(Loss()); });
}

TEST(MetricsInCompile, CallbacksAskThemForTheDirection) {
  for (const char* name : {"auc", "precision", "hinge", "r2_score"}) {
    Sequential model = small_net({name});
    EXPECT_NO_THROW(model.fit(ones({4, 4}), ones({4, 3}),
                              {.epochs = 1,
                               .callbacks = {EarlyStopping({.monitor = name})},
                               .verbose = Verbose::kSilent}))
        << name;
  }
  EXPECT_EQ(Metric("auc").direction(), Direction::kUp);
  EXPECT_EQ(Metric("hinge").direction(), Direction::kDown);
  EXPECT_EQ(Metric("true_positives").direction(), Direction::kUnknown);
}

// --- Optimizers, schedules, regularizers.

std::vector<Tensor> tensors_of(const Config& list) {
  std::vector<Tensor> all;
  for (const Config& one : list.list()) all.push_back(tensor_of(one));
  return all;
}

class GoldenOptimizers : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, GoldenOptimizers, ::testing::Values(1, 2));

// Over replicas, each of which brings half of the gradients.
TEST_P(GoldenOptimizers, StepsAndConfigsAreKeras) {
  const Strategy strategy = strategy_of(GetParam());
  const auto scope = strategy.scope();
  const Config file = golden_file("optimizers.json");
  for (const Config& one : file.at("optimizers").list()) {
    SCOPED_TRACE(one.at("config").to_json());
    const Optimizer optimizer = Optimizer::deserialize(one.at("config"));
    EXPECT_EQ(optimizer.serialize(), one.at("config"));
    const std::vector<Tensor> start = tensors_of(one.at("start"));
    std::vector<Variable> variables;
    for (std::size_t i = 0; i < start.size(); ++i) {
      variables.emplace_back(start[i], VariableOptions{.name = one.at("names").list()[i].text()});
    }
    for (const Config& step : one.at("steps").list()) {
      const std::vector<Tensor> gradients = tensors_of(step.at("gradients"));
      strategy.run([&] {
        std::vector<GradientAndVariable> pairs;
        for (std::size_t i = 0; i < variables.size(); ++i) {
          pairs.push_back({gradients[i] / strategy.num_replicas_in_sync(), variables[i]});
        }
        optimizer.apply_gradients(std::move(pairs));
      });
      const std::vector<Tensor> weights = tensors_of(step.at("weights"));
      for (std::size_t i = 0; i < variables.size(); ++i) {
        EXPECT_TRUE(close(variables[i].value(), weights[i], 2e-5)) << variables[i].name();
      }
    }
  }
}

// Keras rounds behind each operation, Cohort behind a step: they agree as far as the dtype says.
TEST_P(GoldenOptimizers, OfNarrowVariablesAreKerass) {
  const Strategy strategy = strategy_of(GetParam());
  const auto scope = strategy.scope();
  const Config file = golden_file("optimizers.json");
  for (const Config& one : file.at("narrow").list()) {
    SCOPED_TRACE(str_cat(one.text("dtype"), " ", one.at("config").to_json()));
    const DType dtype = ConfigValue<DType>::read(one.at("dtype"));
    const Optimizer optimizer = Optimizer::deserialize(one.at("config"));
    const std::vector<Tensor> start = tensors_of(one.at("start"));
    std::vector<Variable> variables;
    for (std::size_t i = 0; i < start.size(); ++i) {
      variables.emplace_back(start[i].to(dtype),
                             VariableOptions{.name = one.at("names").list()[i].text()});
    }
    for (const Config& step : one.at("steps").list()) {
      const std::vector<Tensor> gradients = tensors_of(step.at("gradients"));
      strategy.run([&] {
        std::vector<GradientAndVariable> pairs;
        for (std::size_t i = 0; i < variables.size(); ++i) {
          const Tensor share = gradients[i] / strategy.num_replicas_in_sync();
          pairs.push_back({share.to(dtype), variables[i]});
        }
        optimizer.apply_gradients(std::move(pairs));
      });
      const std::vector<Tensor> weights = tensors_of(step.at("weights"));
      for (std::size_t i = 0; i < variables.size(); ++i) {
        EXPECT_EQ(variables[i].dtype(), dtype);
        EXPECT_TRUE(
            close(variables[i].value().to(kFloat32), weights[i], dtype == kFloat16 ? 4e-3 : 3e-2))
            << variables[i].name();
      }
    }
  }
}

TEST(GoldenSchedules, RatesAndConfigsAreKeras) {
  const Config file = golden_file("optimizers.json");
  for (const Config& one : file.at("schedules").list()) {
    SCOPED_TRACE(one.at("config").to_json());
    const LearningRate rate = LearningRate::deserialize(one.at("config"));
    EXPECT_EQ(rate.serialize(), one.at("config"));
    int64_t step = 0;
    for (const Config& want : one.at("rates").list()) {
      EXPECT_NEAR(rate(step++), want.number(), 2e-6) << step;
    }
  }
}

TEST(GoldenRegularizers, ValuesAndConfigsAreKeras) {
  const Config file = golden_file("optimizers.json");
  for (const Config& one : file.at("regularizers").list()) {
    SCOPED_TRACE(one.at("config").to_json());
    const Regularizer regularizer = Regularizer::deserialize(one.at("config"));
    EXPECT_EQ(regularizer.serialize(), one.at("config"));
    EXPECT_NEAR(regularizer(tensor_of(one.at("weight"))).item<double>(), one.number("value"), 1e-6);
  }
}

// --- What objects are made of.

TEST(Objects, DefaultsAreThoseOfKeras) {
  EXPECT_EQ(L1L2(0.5).get_config().number("l2"), 0);
  EXPECT_EQ(Regularizer("l1_l2").get_config().number("l2"), 0.01);
  EXPECT_EQ(Regularizer("L1L2").get_config().number("l2"), 0);
  EXPECT_FALSE(Regularizer(nullptr));
  EXPECT_EQ(ActivationFunction(nullptr), ActivationFunction("linear"));
  const Config unnamed = Config::object({{"module", "keras.metrics"},
                                         {"class_name", "SparseCategoricalAccuracy"},
                                         {"config", Config::object()}});
  EXPECT_EQ(Metric::deserialize(unnamed).name(), "sparse_categorical_accuracy");
}

TEST(Objects, EmptyPointersAndWrongNumbersAreRefused) {
  expect_error<InvalidArgument>({"learning_rate", "empty pointer"},
                                [] { LearningRate{std::shared_ptr<ScheduleBase>()}; });
  expect_error<InvalidArgument>({"initializer", "empty pointer"},
                                [] { Initializer{std::shared_ptr<InitializerBase>()}; });
  const auto of = [](const char* module, const char* name, Config config) {
    return Config::object(
        {{"module", module}, {"class_name", name}, {"config", std::move(config)}});
  };
  expect_error<InvalidArgument>({"top_k_categorical_accuracy", "k above 0"}, [&] {
    Metric::deserialize(of("keras.metrics", "TopKCategoricalAccuracy", Config::object({{"k", 0}})));
  });
  expect_error<InvalidArgument>({"adamw", "weight_decay"}, [&] {
    Optimizer::deserialize(
        of("keras.optimizers", "AdamW", Config::object({{"weight_decay", nullptr}})));
  });
  const Config wide =
      of("keras.metrics", "AUC", Config::object({{"dtype", "float64"}, {"name", "a"}}));
  EXPECT_EQ(Metric::deserialize(wide).get_config().text("dtype"), "float64");
}

// Keras has two integers of a vector that nothing uses; its files count them.
TEST(Adafactor, KeepsWhatKerasKeepsInItsOrder) {
  Sequential model({InputLayer({3}), Dense(2)});
  const Optimizer optimizer = Adafactor({.learning_rate = 0.1});
  optimizer.build(model.trainable_variables());
  std::vector<Shape> shapes;
  for (const Variable& v : optimizer.base().stored_variables()) shapes.push_back(v.shape());
  EXPECT_EQ(shapes, (std::vector<Shape>{{}, {}, {3}, {2}, {3, 2}, {}, {}, {2}}));
}

}  // namespace
}  // namespace cohort::keras
