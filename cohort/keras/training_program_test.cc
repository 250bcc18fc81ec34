// SPDX-License-Identifier: Apache-2.0
//
// Programs around fit: steps of one's own, single batches, and what they are told when something is
// not as it should be.
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <sstream>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using testing::expect_error;
using testing::strategy_of;

constexpr Verbose kSilent = Verbose::kSilent;

// Of rows 0, 1, 2, ...: every value of a step's own that a program may want to see.
struct Reporter : Model {
  Layer flat = Flatten();
  metrics::MeanAbsoluteError mae = metrics::MeanAbsoluteError("mine");
  Reporter() { track(flat); }
  Tensor call(const Tensor& x, const CallArgs& args) override { return flat(x, args); }
  Logs train_step(const Element& batch) override {
    const auto [x, y, weight] = unpack_x_y_sample_weight(batch);
    const Tensor y_pred = (*this)(x, {.training = true});
    const Tensor loss = compute_loss(x, y, y_pred, weight);
    mae.update_state(y, y_pred);
    return {{"loss", loss},
            {"copied", loss.detach().clone()},
            {"number", loss.item<double>()},
            {"mean", y_pred.mean()},
            {"constant", 7.0},
            {"mine", mae}};
  }
};

// Labels of every word of every row: the step makes a row of each word before it asks for the loss.
struct Words : Model {
  Layer scores = Dense(1, {.use_bias = false, .kernel_initializer = "ones"});
  const bool flat;
  explicit Words(bool flattens) : flat(flattens) { track(scores); }
  Tensor call(const Tensor& x, const CallArgs& args) override { return scores(x, args); }
  Logs train_step(const Element& batch) override {
    auto [x, y, weight] = unpack_x_y_sample_weight(batch);
    GradientTape tape;
    Tensor y_pred = (*this)(x, {.training = true});
    if (flat) y_pred = y_pred.reshape({-1, 1});
    if (flat) y = y.reshape({-1, 1});
    const Tensor loss = compute_loss(x, y, y_pred, weight);
    optimizer().apply_gradients(tape.gradient(loss, trainable_variables()));
    return {{"loss", loss}};
  }
};

class TrainStepOn : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, TrainStepOn, ::testing::Values(1, 2, 3, 4));

TEST_P(TrainStepOn, TakesTheSameStepWhateverItMakesOfTheRows) {
  const Strategy strategy = strategy_of(GetParam());
  const auto scope = strategy.scope();
  std::vector<float> weights;
  for (const bool flat : {false, true}) {
    Words model(flat);
    model.compile({.optimizer = SGD({.learning_rate = 0.01}), .loss = "mse"});
    const Tensor x = from_vector(std::vector<float>(5 * 4 * 2, 0.5F), {5, 4, 2});
    model.fit(x, zeros({5, 4, 1}), {.batch_size = 5, .verbose = kSilent});
    weights.push_back(model.get_weights()[0].reshape({-1})[0].item<float>());
  }
  EXPECT_LT(weights[0], 1);
  EXPECT_NEAR(weights[0], weights[1], 1e-6);
}

// As on one replica, where no value has to be put together.
TEST_P(TrainStepOn, ShowsWhatOneReplicaWouldShow) {
  const Strategy strategy = strategy_of(GetParam());
  const auto scope = strategy.scope();
  Reporter model;
  model.compile({.optimizer = SGD(), .loss = "mse"});
  const auto expect = [](const auto& number, int64_t first, int64_t rows) {
    double squares = 0, sum = 0;
    for (int64_t i = first; i < first + rows; ++i) {
      squares += static_cast<double>(i * i) / static_cast<double>(rows);
      sum += static_cast<double>(i) / static_cast<double>(rows);
    }
    for (const char* name : {"loss", "copied", "number"}) {
      EXPECT_NEAR(number(name), squares, 1e-4) << name;
    }
    EXPECT_NEAR(number("mean"), sum, 1e-5);
    EXPECT_NEAR(number("constant"), 7, 1e-9);
  };
  const Tensor x = arange(9, kFloat32).unsqueeze(1);
  const Logs one = model.train_on_batch(x.narrow(0, 0, 5), zeros({5, 1}));
  expect([&](const char* name) { return one.number(name); }, 0, 5);
  // Two batches, of 6 rows and of 3: the last one's values, but all of a metric.
  const Dataset data = Dataset::from_tensor_slices({x, zeros({9, 1})}).batch(6);
  const History history = model.fit(data, {.verbose = kSilent});
  expect([&](const char* name) { return history[name][0]; }, 6, 3);
  EXPECT_NEAR(history["mine"][0], 4, 1e-5);
}

// Tells a metric of its own in training, and another one in tests; one as a number.
struct Teller : Model {
  Layer flat = Flatten();
  metrics::MeanAbsoluteError trained = metrics::MeanAbsoluteError("trained");
  Mean tested = Mean("tested");
  Teller() { track(flat); }
  Tensor call(const Tensor& x, const CallArgs& args) override { return flat(x, args); }
  Logs train_step(const Element& batch) override {
    trained.update_state(batch[1].tensor(), (*this)(batch[0].tensor()));
    return {{"trained", trained}};
  }
  Logs test_step(const Element& batch) override {
    tested.update_state((*this)(batch[0].tensor()));
    return {{"tested", [this] { return tested.result(); }}};
  }
};

TEST_P(TrainStepOn, AModelsOwnMetricsBeginAnewInEachEpochAndEvaluation) {
  const Strategy strategy = strategy_of(GetParam());
  const auto scope = strategy.scope();
  Teller model;
  const auto compile = [&] { model.compile({.optimizer = SGD(), .loss = "mse"}); };
  const auto rows = [](double value) -> Tensor { return ones({6, 1}) * value; };
  const auto data = [&](const Tensor& x) {
    return Dataset::from_tensor_slices({x, zeros({x.size(0), 1})}).batch(3);
  };
  compile();
  // Two steps of ones, then two of threes: a mean of both epochs would be 2.
  const History history = model.fit(
      data(concat(std::vector{rows(1), rows(3)})),
      {.epochs = 2, .validation_data = data(rows(5)), .verbose = kSilent, .steps_per_epoch = 2});
  EXPECT_EQ(history["trained"], (std::vector<double>{1, 3}));
  EXPECT_EQ(history["val_tested"], (std::vector<double>{5, 5}));
  EXPECT_EQ(model.evaluate(data(rows(7)), {.verbose = kSilent}).number("tested"), 7);
  EXPECT_EQ(model.train_on_batch(rows(9), zeros({6, 1})).number("trained"), 9);
  compile();
  EXPECT_EQ(model.fit(data(rows(11)), {.verbose = kSilent})["trained"][0], 11);
  model.reset_metrics();
  EXPECT_EQ(model.trained.result().item<double>(), 0);
}

// Remembers the rows of each replica's part.
struct Counter : Model {
  std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();
  std::map<int, std::vector<int64_t>> rows;
  Dense out = add("out", Dense(1));
  Tensor call(const Tensor& x, const CallArgs& args) override { return out(x, args); }
  Logs train_step(const Element& batch) override {
    {
      const std::lock_guard lock(*mutex);
      rows[std::max(0, current_replica())].push_back(batch.rows());
    }
    return Model::train_step(batch);
  }
};

TEST(TrainOnBatch, SplitsRowsAsFitDoes) {
  const Strategy four = strategy_of(4);
  const auto scope = four.scope();
  for (const int64_t rows : {1, 3, 4, 5, 7, 10}) {
    Counter model;
    model.compile({.optimizer = SGD(), .loss = "mse"});
    const Tensor x = ones({rows, 2}), y = ones({rows, 1});
    model.train_on_batch(x, y);
    model.fit(Dataset::from_tensor_slices({x, y}).batch(rows), {.verbose = kSilent});
    ASSERT_EQ(model.rows.size(), 4u);
    for (const auto& [replica, parts] : model.rows) {
      ASSERT_EQ(parts.size(), 2u);
      EXPECT_EQ(parts[0], parts[1]) << rows << " rows, replica " << replica;
    }
  }
}

Dataset data() {
  const Tensor x = (arange(16, kFloat32) + 1).reshape({8, 2}) / 16;
  return Dataset::from_tensor_slices({x, x.sum(1, true)}).batch(4);
}

TEST(AModelOutsideOfTheScope, IsAnErrorWhoseCureTrainsOnAllReplicas) {
  const Strategy two = strategy_of(2);
  Counter outside;
  outside.compile({.loss = "mse"});
  {
    const auto scope = two.scope();
    for (const auto& call :
         std::vector<std::function<void()>>{[&] { outside.fit(data(), {.verbose = kSilent}); },
                                            [&] { outside.evaluate(data(), {.verbose = kSilent}); },
                                            [&] { outside.predict(data(), {.verbose = kSilent}); },
                                            [&] { outside.compile({.loss = "mse"}); }}) {
      expect_error<FailedPrecondition>(
          {"\"" + outside.name() + "\"", two.extended().description() + " (2 replicas)",
           "made under the default strategy (1 replica)", "auto scope = strategy.scope();",
           "call compile() there"},
          call);
    }
  }
  const auto scope = two.scope();
  Counter inside;
  inside.compile({.loss = "mse"});
  inside.fit(data(), {.verbose = kSilent});
  EXPECT_EQ(inside.rows.size(), 2u);
  EXPECT_EQ(inside.variables()[0].components().size(), 2u);
}

TEST(AModelOutsideOfTheScope, IsOneWhoseLayersHadTheirWeightsBefore) {
  const Dense early(1);
  early(ones({1, 2}));
  const Strategy two = strategy_of(2);
  const auto scope = two.scope();
  Sequential model({early});
  model.compile({.loss = "mse"});
  for (const auto& call :
       std::vector<std::function<void()>>{[&] { model.fit(data(), {.verbose = kSilent}); },
                                          [&] {
                                            model.train_on_batch(ones({2, 2}), ones({2, 1}));
                                          }}) {
    expect_error<FailedPrecondition>(
        {"\"" + model.name() + "\"", two.extended().description() + " (2 replicas)",
         "\"" + early.name() + "/kernel\" (variable ", "made outside of it", "auto scope"},
        call);
  }
}

TEST(FitInsideOfRun, SaysWhereToCallIt) {
  const Strategy two = strategy_of(2);
  const auto scope = two.scope();
  Sequential model({Dense(1)});
  model.compile({.loss = "mse"});
  const auto expect = [&](const std::string& operation, const std::function<void()>& call) {
    expect_error<FailedPrecondition>({"[" + operation + "] expected model \"" + model.name() +
                                          "\" outside of strategy.run, got replica 0",
                                      "call it where run is called"},
                                     [&] { two.run(call); });
    const std::string text = testing::error_text([&] { two.run(call); });
    EXPECT_EQ(text.find("merge_call"), std::string::npos) << text;
  };
  expect("fit", [&] { model.fit(data(), {.verbose = kSilent}); });
  expect("evaluate", [&] { model.evaluate(data(), {.verbose = kSilent}); });
  expect("predict", [&] { model.predict(data(), {.verbose = kSilent}); });
  expect("compile", [&] { model.compile({.loss = "mse"}); });
  expect("save_weights", [&] { model.save_weights("w.safetensors"); });
}

TEST(ComputeLoss, IsForStepsOfItsModelsScope) {
  Sequential outside({Flatten()});
  outside.compile({.loss = "mse"});
  const Tensor y = ones({2, 1});
  expect_error<FailedPrecondition>(
      {"[compute_loss]", "scope of this strategy (2 replicas)", "got one for 1"},
      [&] { strategy_of(2).run([&] { outside.compute_loss(y, y, y); }); });
}

TEST(AnEmptyModel, IsToldToAddLayers) {
  Sequential model;
  model.compile({.optimizer = "adam", .loss = "mse"});
  for (const auto& call :
       std::vector<std::function<void()>>{[&] { model.fit(data(), {.verbose = kSilent}); },
                                          [&] {
                                            model.predict(ones({2, 2}), {.verbose = kSilent});
                                          },
                                          [&] {
                                            model(ones({2, 2}));
                                          }}) {
    expect_error<FailedPrecondition>({"\"" + model.name() + "\" without any", "call add()"}, call);
  }
  model.add(Dense(1));
  EXPECT_EQ(model.fit(data(), {.verbose = kSilent}).epoch.size(), 1u);
}

// As Keras: a warning, and the loss of the data.
TEST(AModelWithoutTrainableWeights, IsAWarning) {
  Sequential model({Flatten()});
  model.compile({.optimizer = "adam", .loss = "mse"});
  const Tensor x = arange(4, kFloat32).unsqueeze(1);
  ::testing::internal::CaptureStderr();
  const History history = model.fit(x, zeros({4, 1}), {.epochs = 3, .verbose = kSilent});
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NEAR(history["loss"][2], 14 / 4.0, 1e-5);
  const std::string words = "model \"" + model.name() + "\" has no trainable weights";
  EXPECT_NE(text.find(words), std::string::npos) << text;
  EXPECT_EQ(text.find(words), text.rfind(words)) << "once is enough: " << text;
}

TEST(HistoryOfFit, SaysWhichNamesItHas) {
  Sequential model({Dense(1)});
  model.compile({.loss = "mse", .metrics = {"mae"}});
  const History history = model.fit(data(), {.epochs = 2, .verbose = kSilent});
  EXPECT_EQ(history["loss"].size(), 2u);
  EXPECT_EQ(history.at("mae"), history.history.at("mae"));
  EXPECT_TRUE(history.contains("mae"));
  EXPECT_FALSE(history.contains("acc"));
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { (void)history["acc"].back(); }, [&] { history.at("acc"); },
           [&] { history.history.at("acc"); }, [&] { (void)history.history["acc"].back(); }}) {
    expect_error<InvalidArgument>({"expected one of [loss, mae], got \"acc\""}, call);
  }
  expect_error<InvalidArgument>({"[loss, mae], got \"val_loss\"", "validation_data"},
                                [&] { history.at("val_loss"); });
  expect_error<InvalidArgument>({"no epoch has ended"}, [] { History().at("loss"); });
}

TEST(HistoryOfFit, PrintsAsInPython) {
  const History history{.epoch = {0, 1},
                        .history = {{"loss", {0.5, 0.25}}, {"val_loss", {1, 1.5}}}};
  std::ostringstream out;
  out << history << ' ' << history.history << ' ' << History();
  const std::string one = "{'loss': [0.5, 0.25], 'val_loss': [1, 1.5]}";
  EXPECT_EQ(out.str(), one + ' ' + one + " {}");
}

}  // namespace
}  // namespace cohort::keras
