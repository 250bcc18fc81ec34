// SPDX-License-Identifier: Apache-2.0
//
// fit, evaluate and predict on parameter servers: the chief's program is that of any strategy, the
// workers make the steps. T21, T22, T23 and T33 of the conformance list. Workers and servers are
// threads of this process.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "cohort/cohort.h"
#include "cohort/coordinator/test_cluster.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/temporary_folder.h"

namespace cohort::keras {
namespace {

using cohort::testing::expect_error;
using cohort::testing::TestCluster;

constexpr Verbose kSilent = Verbose::kSilent;
const Tensor kX = (arange(96).to(kFloat32) * 0.37).sin().reshape({32, 3});
const Tensor kY = (kX.sum(1, true) * 0.5).tanh();

Dataset examples() { return Dataset::from_tensor_slices({kX, kY}); }

std::mutex g_mutex;
std::set<std::pair<int, int>> g_contexts;  // pipelines, and which

Dataset make_endless(const InputContext& context, int64_t batch) {
  const std::scoped_lock lock(g_mutex);
  g_contexts.emplace(context.num_input_pipelines, context.input_pipeline_id);
  return examples().shuffle(32).repeat().batch(batch);
}
Dataset make_whole(const InputContext&) { return examples().batch(4); }
Dataset make_short(const InputContext&) { return examples().take(8).batch(4); }
Dataset make_bad(const InputContext& context) {
  return examples().repeat().batch(4).map(
      [bad = context.num_input_pipelines > 1](const Tensor& x, const Tensor& y) {
        if (bad) throw InvalidArgument("a row that nobody can read");
        return std::pair(x, y);
      });
}
// Shard i of 32 has i right answers among its 64 rows.
Dataset make_accuracies(const InputContext&) {
  return Dataset::range(32).map([](const Tensor& shard) {
    const int64_t right = shard.item<int64_t>();
    return std::pair(zeros({64, 1}), (arange(64) >= right).to(kFloat32).reshape({64, 1}));
  });
}
// 512 zeros, then 512 ones, with outputs that rise from 0 to 1 over each half.
Dataset make_ramps(const InputContext&) {
  const Tensor ramp = arange(512).to(kFloat32) / 511;
  const Tensor truth = (arange(1024) >= 512).to(kFloat32);
  return Dataset::from_tensor_slices(
             {concat(std::vector{ramp, ramp}).reshape({1024, 1}), truth.reshape({1024, 1})})
      .batch(16);
}
COHORT_REGISTER_FUNCTION(make_endless);
COHORT_REGISTER_FUNCTION(make_whole);
COHORT_REGISTER_FUNCTION(make_short);
COHORT_REGISTER_FUNCTION(make_bad);
COHORT_REGISTER_FUNCTION(make_accuracies);
COHORT_REGISTER_FUNCTION(make_ramps);

struct Job {
  explicit Job(int workers = 2, int servers = 2)
      : cluster(workers, servers),
        strategy({.cluster_resolver = std::make_shared<SimpleClusterResolver>(cluster.spec())}) {
    clear_session();
  }
  TestCluster cluster;
  ParameterServerStrategy strategy;
};

Sequential make_model() {
  return Sequential({Dense(6, {.activation = "tanh"}), BatchNormalization(), Dense(1)});
}

struct Outcome {
  std::vector<std::vector<float>> weights;
  std::map<std::string, std::vector<double>> history;
  std::vector<double> evaluated;
  Tensor predicted;
};

Outcome train(const Strategy& strategy) {
  set_seed(3);
  clear_session();
  const auto scope = strategy.scope();
  Sequential model = make_model();
  model.compile({.optimizer = Adam({.learning_rate = 0.05}),
                 .loss = "mse",
                 .metrics = {"mae"},
                 .weighted_metrics = {"mse"},
                 .steps_per_execution = 2});
  const Dataset data = examples().batch(4);
  Outcome out;
  out.history = model
                    .fit(data, {.epochs = 3,
                                .validation_data = examples().take(10).batch(4),
                                .callbacks = {LearningRateScheduler(
                                    [](int epoch, double) { return epoch == 2 ? 0.01 : 0.05; })},
                                .verbose = kSilent})
                    .history;
  for (const Tensor& w : model.get_weights()) out.weights.push_back(to_vector<float>(w));
  const Logs logs = model.evaluate(data, {.verbose = kSilent});
  for (const std::string& name : logs.names()) out.evaluated.push_back(logs.number(name));
  out.predicted = model.predict(kX, {.verbose = kSilent});
  EXPECT_EQ(model.optimizer().iterations().value().item<int64_t>(), 24);
  return out;
}

// One worker makes the steps in their order.
TEST(ParameterServerFit, TheChiefsDataGivesTheNumbersOfOneProcess) {
  const Outcome here = train(OneDeviceStrategy("CPU:0"));
  const Job job(1);
  const Outcome there = train(job.strategy);
  EXPECT_EQ(there.weights, here.weights);
  ASSERT_EQ(there.history.size(), here.history.size());
  for (const auto& [name, values] : here.history) {
    ASSERT_EQ(there.history.count(name), 1U) << name;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(there.history.at(name)[i], values[i], 1e-12) << name;
    }
  }
  ASSERT_EQ(there.evaluated.size(), here.evaluated.size());
  for (std::size_t i = 0; i < here.evaluated.size(); ++i) {
    EXPECT_NEAR(there.evaluated[i], here.evaluated[i], 1e-12);
  }
  EXPECT_TRUE(there.predicted.equal(here.predicted));
}

TEST(ParameterServerFit, WorkersTrainWithDataOfTheirOwn) {
  const Job job;
  const auto scope = job.strategy.scope();
  Sequential model({Dense(6, {.activation = "tanh"}), Dense(1)});
  model.compile({.optimizer = Adam({.learning_rate = 0.02}),
                 .loss = "mse",
                 .metrics = {"mae"},
                 .steps_per_execution = 3});
  g_contexts.clear();
  const History history =
      model.fit(DatasetCreator(make_endless, 8), {.epochs = 10,
                                                  .validation_data = DatasetCreator(make_whole),
                                                  .verbose = kSilent,
                                                  .steps_per_epoch = 10});
  EXPECT_EQ(model.optimizer().iterations().value().item<int64_t>(), 100);
  ASSERT_EQ(history["loss"].size(), 10U);
  EXPECT_LT(history["loss"].back(), history["loss"].front());
  EXPECT_LT(history["val_mae"].back(), history["val_mae"].front());
  {
    const std::scoped_lock lock(g_mutex);  // the chief's, for the shapes, and both workers'
    EXPECT_EQ(g_contexts, (std::set<std::pair<int, int>>{{1, 0}, {2, 0}, {2, 1}}));
  }
  const Logs logs = model.evaluate(DatasetCreator(make_whole), {.verbose = kSilent});
  EXPECT_NEAR(logs.number("mae"), history["val_mae"].back(), 1e-9);
  const Tensor predicted = model.predict(DatasetCreator(make_whole), {.verbose = kSilent});
  EXPECT_NEAR((predicted - kY).abs().mean().item<double>(), logs.number("mae"), 1e-6);
  // Another fit goes on with the same weights.
  model.fit(DatasetCreator(make_endless, 8), {.verbose = kSilent, .steps_per_epoch = 1});
  EXPECT_EQ(model.optimizer().iterations().value().item<int64_t>(), 101);
}

TEST(ParameterServerFit, T21_SaysWhatIsNotAllowed) {
  const Job job(1, 1);
  const auto scope = job.strategy.scope();
  Sequential model({Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const DatasetCreator data(make_endless, 8);
  expect_error<InvalidArgument>({"[fit]", "steps_per_epoch must be provided"},
                                [&] { model.fit(data, {.verbose = kSilent}); });
  expect_error<InvalidArgument>({"verbose", "not allowed", "ParameterServerStrategy"}, [&] {
    model.fit(data, {.verbose = Verbose::kBar, .steps_per_epoch = 1});
  });
  expect_error<InvalidArgument>({"verbose", "not allowed"},
                                [&] { model.predict(kX, {.verbose = Verbose::kBar}); });
  Sequential eager({Dense(1)});
  eager.compile({.optimizer = "sgd", .loss = "mse", .run_eagerly = true});
  expect_error<InvalidArgument>({"[fit]", "run_eagerly", "ParameterServerStrategy"}, [&] {
    eager.fit(data, {.verbose = kSilent, .steps_per_epoch = 1});
  });
  struct Batches : CallbackBase {
    void on_train_batch_end(int64_t, Logs&) override {}
  };
  struct More : Batches {};
  struct Epochs : CallbackBase {
    void on_epoch_end(int, Logs&) override { ++ended; }
    int ended = 0;
  };
  const std::vector<Callback> refused = {
      std::make_shared<Batches>(), std::make_shared<More>(),
      LambdaCallback({.on_train_batch_begin = [](int64_t) {}}),
      ModelCheckpoint("w.safetensors", {.save_every_batches = 2}),
      BackupAndRestore("folder", {.save_freq = 2})};
  for (const Callback& callback : refused) {
    expect_error<InvalidArgument>({"batch-level callbacks are not supported"}, [&] {
      model.fit(data, {.callbacks = {callback}, .verbose = kSilent, .steps_per_epoch = 1});
    });
    expect_error<InvalidArgument>({"[evaluate]", "batch-level"}, [&] {
      model.evaluate(kX, kY, {.callbacks = {callback}, .verbose = kSilent});
    });
  }
  const auto epochs = std::make_shared<Epochs>();
  model.fit(data, {.epochs = 2,
                   .callbacks = {epochs, TerminateOnNaN(), LambdaCallback({})},
                   .verbose = kSilent,
                   .steps_per_epoch = 1});
  EXPECT_EQ(epochs->ended, 2);
  expect_error<InvalidArgument>({"registered", "lambda"}, [&] {
    model.fit(DatasetCreator([](const InputContext&) { return examples().repeat().batch(8); }),
              {.verbose = kSilent, .steps_per_epoch = 1});
  });
}

struct FirstColumn : LayerBase {
  Tensor call(const Tensor& x, const CallArgs&) override { return x; }
  bool may_have_weights() const override { return false; }
  Config get_config() const override { return Config::object({{"name", name()}}); }
  static std::shared_ptr<FirstColumn> from_config(const Config& config) {
    auto made = std::make_shared<FirstColumn>();
    made->set_name(config.text("name"));
    return made;
  }
};
COHORT_REGISTER_SERIALIZABLE("parameter_server_fit_test", FirstColumn);

// T22: 2,048 rows in 32 shards, while workers come and go.
TEST(ParameterServerFit, T22_EvaluationCountsEachShardOnce) {
  Job job(5);
  const auto scope = job.strategy.scope();
  Sequential model({std::make_shared<FirstColumn>()});
  model.compile({.loss = "mae", .metrics = {"binary_accuracy"}, .pss_evaluation_shards = 32});
  std::atomic<bool> ends = false;
  std::thread killer([&] {
    for (int round = 0; !ends; ++round) {
      job.cluster.stop("worker", round % 2);
      job.cluster.start("worker", round % 2);
    }
  });
  for (int round = 0; round < 5; ++round) {
    const Logs logs = model.evaluate(DatasetCreator(make_accuracies), {.verbose = kSilent});
    EXPECT_DOUBLE_EQ(logs.number("binary_accuracy"), 0.2421875);
    EXPECT_DOUBLE_EQ(logs.number("loss"), 0.7578125);
  }
  ends = true;
  killer.join();
}

TEST(ParameterServerFit, T23_AnEvaluationNeedsDataThatEnds) {
  const Job job(1, 1);
  const auto scope = job.strategy.scope();
  Sequential model({Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  expect_error<InvalidArgument>({"[evaluate]", "no end", "steps"}, [&] {
    model.evaluate(DatasetCreator(make_endless, 8), {.verbose = kSilent});
  });
  // So many of it are a part that ends.
  const Logs some =
      model.evaluate(DatasetCreator(make_endless, 8), {.steps = 3, .verbose = kSilent});
  EXPECT_GT(some.number("loss"), 0);
}

// A metric that is no mean of the shards' own values.
struct Spread : MetricBase {
  explicit Spread(std::string name = "spread") : MetricBase(std::move(name)) {}
  Variable sum = add_variable({}, "sum");
  Variable squares = add_variable({}, "squares");
  Variable count = add_variable({}, "count");
  void update_state(const Tensor&, const Tensor& y_pred, const Tensor&) override {
    sum.assign_add(y_pred.sum());
    squares.assign_add(y_pred.square().sum());
    count.assign_add(static_cast<double>(y_pred.numel()));
  }
  Tensor result() override {
    const Tensor mean = sum.value() / count.value();
    return squares.value() / count.value() - mean * mean;
  }
  Config get_config() const override { return Config::object({{"name", name()}}); }
  static std::shared_ptr<Spread> from_config(const Config& config) {
    return std::make_shared<Spread>(config.text("name"));
  }
};
COHORT_REGISTER_SERIALIZABLE("parameter_server_fit_test", Spread);

TEST(ParameterServerFit, T33_AMetricIsThatOfAllWorkers) {
  const Job job(2, 1);
  const auto scope = job.strategy.scope();
  Sequential model({std::make_shared<FirstColumn>()});
  model.compile({.loss = "mae", .metrics = {"mae", AUC(), Metric(std::make_shared<Spread>())}});
  const Logs logs = model.evaluate(DatasetCreator(make_ramps), {.verbose = kSilent});
  EXPECT_NEAR(logs.number("mae"), 0.5, 1e-5);
  EXPECT_NEAR(logs.number("auc"), 0.5, 1e-5);
  const Tensor ramp = arange(512).to(kFloat64) / 511;
  EXPECT_NEAR(logs.number("spread"), ramp.var(0, false).item<double>(), 1e-5);
}

TEST(ParameterServerFit, WhatAStepThrowsLeavesFitAndTheNextOneWorks) {
  const Job job;
  const auto scope = job.strategy.scope();
  Sequential model({Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  expect_error<InvalidArgument>({"a row that nobody can read", "worker"}, [&] {
    model.fit(DatasetCreator(make_bad), {.verbose = kSilent, .steps_per_epoch = 100});
  });
  expect_error(ErrorCode::kOutOfRange, {"dataset has ended", "repeat()"}, [&] {
    model.fit(DatasetCreator(make_short), {.verbose = kSilent, .steps_per_epoch = 100});
  });
  model.fit(DatasetCreator(make_endless, 8), {.verbose = kSilent, .steps_per_epoch = 5});
}

TEST(ParameterServerFit, WeightsOfClassesReachWorkers) {
  const Job job(1, 1);
  const auto scope = job.strategy.scope();
  Sequential model({Dense(1, {.kernel_initializer = "ones"})});
  model.compile({.optimizer = SGD({.learning_rate = 0}), .loss = "mse"});
  const Tensor labels = (arange(32) % 2).to(kFloat32);
  const auto loss = [&](const std::map<int64_t, double>& weights) {
    return model
        .fit(kX, labels, {.batch_size = 8, .verbose = kSilent, .class_weight = weights})["loss"]
        .back();
  };
  EXPECT_NEAR(loss({{0, 2.0}, {1, 2.0}}), 2 * loss({}), 1e-6);
}

// It logs more than the metrics, and ends fit.
struct OwnStep : Sequential {
  using Sequential::Sequential;
  Logs train_step(const Element& batch) override {
    Logs logs = Sequential::train_step(batch);
    logs.set("rows", static_cast<double>(batch.rows()));
    if (get_current_worker_index() == 0) stop_training();
    return logs;
  }
  static std::shared_ptr<OwnStep> from_config(const Config& config) {
    const auto whole = Sequential::from_config(config);
    return std::make_shared<OwnStep>(whole->layers(), config.text("name"));
  }
};
COHORT_REGISTER_SERIALIZABLE("parameter_server_fit_test", OwnStep);

TEST(ParameterServerFit, AModelWithAStepOfItsOwn) {
  const Job job(1, 1);
  const auto scope = job.strategy.scope();
  OwnStep model(std::vector<Layer>{Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const History history = model.fit(DatasetCreator(make_endless, 8),
                                    {.epochs = 9, .verbose = kSilent, .steps_per_epoch = 200});
  ASSERT_EQ(history["loss"].size(), 1U);
  EXPECT_EQ(history["rows"].back(), 8);
  EXPECT_LT(model.optimizer().iterations().value().item<int64_t>(), 100);
}

TEST(ParameterServerFit, AveragesWeightsAndAccumulatesGradients) {
  const Job job;
  const auto scope = job.strategy.scope();
  const auto make = [](int steps_per_execution) {
    Sequential model({Dense(1)});
    model.compile({.optimizer = Adam({.learning_rate = 0.05,
                                      .use_ema = true,
                                      .ema_momentum = 0.5,
                                      .gradient_accumulation_steps = 2}),
                   .loss = "mse",
                   .steps_per_execution = steps_per_execution});
    return model;
  };
  const DatasetCreator data(make_endless, 8);
  Sequential model = make(4);
  const History history = model.fit(data, {.epochs = 5, .verbose = kSilent, .steps_per_epoch = 20});
  EXPECT_EQ(model.optimizer().iterations().value().item<int64_t>(), 50);
  EXPECT_LT(history["loss"].back(), history["loss"].front());
  Sequential odd = make(3);
  expect_error<InvalidArgument>({"steps_per_execution", "multiple", "3 and 2"},
                                [&] { odd.fit(data, {.verbose = kSilent, .steps_per_epoch = 3}); });
}

struct NoConfig : LayerBase {
  Tensor call(const Tensor& x, const CallArgs&) override { return x; }
};

TEST(ParameterServerFit, SaysWhatWorkersCannotMake) {
  const Job job(1, 1);
  const auto scope = job.strategy.scope();
  const FitOptions one{.verbose = kSilent, .steps_per_epoch = 1};
  Sequential unknown({std::make_shared<NoConfig>(), Dense(1)});
  unknown.compile({.optimizer = "sgd", .loss = "mse"});
  expect_error<Unimplemented>({"[fit]", "COHORT_REGISTER_SERIALIZABLE", "NoConfig"},
                              [&] { unknown.fit(DatasetCreator(make_endless, 8), one); });
  Sequential first({Dense(1, {.name = "head"})});
  first.compile({.optimizer = SGD({.name = "first"}), .loss = "mse"});
  first.fit(DatasetCreator(make_endless, 8), one);
  Sequential second({Dense(1, {.name = "head"})});
  second.compile({.optimizer = SGD({.name = "second"}), .loss = "mse"});
  expect_error<InvalidArgument>({"\"head/kernel\"", "\"head/kernel_1\"", "names"},
                                [&] { second.fit(DatasetCreator(make_endless, 8), one); });
}

TEST(ParameterServerFit, GoesOnFromABackupOfEpochs) {
  const cohort::testing::TemporaryFolder folder;
  int64_t iterations = 0;
  for (const bool fails : {true, false}) {
    const Job job(2, 1);
    const auto scope = job.strategy.scope();
    Sequential model = make_model();
    model.compile({.optimizer = "adam", .loss = "mse"});
    int epochs = 0;
    const LambdaCallback count({.on_epoch_begin = [&](int epoch) {
      ++epochs;
      if (fails && epoch == 3) throw FailedPrecondition("the chief is killed");
    }});
    const auto fit = [&] {
      model.fit(DatasetCreator(make_endless, 8),
                {.epochs = 5,
                 .callbacks = {BackupAndRestore(folder.path()), count},
                 .verbose = kSilent,
                 .steps_per_epoch = 4});
    };
    if (fails) {
      expect_error<FailedPrecondition>({"the chief is killed"}, fit);
    } else {
      fit();
      EXPECT_EQ(epochs, 2);
    }
    iterations = model.optimizer().iterations().value().item<int64_t>();
  }
  EXPECT_EQ(iterations, 20);
}

TEST(ParameterServerFit, AnEvaluatorIsNoPartOfTheCluster) {
  ClusterSpec::Jobs jobs = {
      {"worker", {"127.0.0.1:1"}}, {"ps", {"127.0.0.1:2"}}, {"evaluator", {"127.0.0.1:3"}}};
  const ParameterServerStrategy strategy(
      {.cluster_resolver = std::make_shared<SimpleClusterResolver>(
           ClusterSpec(jobs), TaskOptions{.task_type = "evaluator", .task_id = 0})});
  const auto scope = strategy.scope();  // and nobody was waited for
  Sequential model({Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  EXPECT_GT(model.evaluate(DatasetCreator(make_whole), {.verbose = kSilent}).number("loss"), 0);
}

}  // namespace
}  // namespace cohort::keras
