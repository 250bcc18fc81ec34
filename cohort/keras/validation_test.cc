// SPDX-License-Identifier: Apache-2.0
//
// What fit validates on and when, what its history says of it, and predictions for one batch.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using testing::expect_error;
using testing::strategy_of;

constexpr Verbose kSilent = Verbose::kSilent;

Tensor inputs(int64_t rows) { return (arange(rows * 3, kFloat32) * 0.37).sin().reshape({rows, 3}); }
Tensor labels(int64_t rows) { return inputs(rows).sum(1, true) * 0.5 + 1; }

// Names count in the process, which workers share.
Sequential compiled_model() {
  Sequential model({InputLayer({3}), Dense(1, {.name = "out"})});
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse"});
  return model;
}

// What fit showed: the epochs that were validated, and the steps of the last validation.
struct Seen : CallbackBase {
  void on_epoch_end(int epoch, Logs& logs) override {
    if (logs.contains("val_loss")) epochs.push_back(epoch + 1);
  }
  void on_test_begin() override { steps = 0; }
  void on_test_batch_end(int64_t, Logs&) override { ++steps; }
  std::vector<int> epochs = {};
  int64_t steps = 0;
};

class ValidationOn : public ::testing::TestWithParam<int> {
 protected:
  const Strategy strategy_ = strategy_of(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Replicas, ValidationOn, ::testing::Values(0, 1, 2, 3));

TEST_P(ValidationOn, RowsAreValidatedAsEvaluateDoes) {
  const auto scope = strategy_.scope();
  Sequential model = compiled_model();
  const Tensor x = inputs(13), y = labels(13) + 1, weight = arange(13, kFloat32);
  const auto seen = std::make_shared<Seen>();
  FitOptions options{
      .batch_size = 8, .validation_data = {x, y}, .callbacks = {seen}, .verbose = kSilent};
  const auto expect_as_evaluated = [&](const History& history, const Tensor& by, int64_t steps) {
    const Logs now = model.evaluate(x, y, {.verbose = kSilent, .sample_weight = by});
    EXPECT_NEAR(history.at("val_loss").back(), now.number("loss"), 1e-5);
    EXPECT_EQ(seen->steps, steps);
  };
  expect_as_evaluated(model.fit(inputs(16), labels(16), options), {}, 2);  // of batch_size
  options.validation_data = {x, y, weight};
  options.validation_batch_size = 5;
  expect_as_evaluated(model.fit(inputs(16), labels(16), options), weight, 3);
  options.batch_size.reset();
  const auto batches = Dataset::from_tensor_slices({inputs(16), labels(16)}).batch(4);
  expect_as_evaluated(model.fit(batches, options), weight, 3);
  options.validation_batch_size.reset();
  expect_as_evaluated(model.fit(batches, options), weight, 1);  // of 32
}

TEST_P(ValidationOn, PredictsOneBatch) {
  const auto scope = strategy_.scope();
  Sequential model({Dense(2), Dense(1)});
  const Tensor x = inputs(5);
  const Tensor got = model.predict_on_batch(x);  // builds it, and needs no compile()
  EXPECT_EQ(got.sizes(), Shape({5, 1}));
  EXPECT_FALSE(got.requires_grad());
  EXPECT_TRUE(got.allclose(model.predict(x, {.verbose = kSilent})));
  EXPECT_TRUE(model.predict_on_batch(x.narrow(0, 0, 1)).allclose(got.narrow(0, 0, 1)));
  const KerasTensor a = Input({3}), b = Input({3});
  const KerasTensor sum = Add()(KerasTensor::tuple({a, b}));
  Model two(KerasTensor::tuple({a, b}), KerasTensor::tuple({sum, Dense(1)(a)}));
  const Element out = two.predict_nest_on_batch({x, 2 * x});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_TRUE(out[0].tensor().allclose(3 * x));
  EXPECT_EQ(out[1].tensor().sizes(), Shape({5, 1}));
}

TEST(Validation, EpochsThatAreListed) {
  Sequential model = compiled_model();
  const auto validated = [&](const ValidationFreq& freq, int initial_epoch = 0) {
    const auto seen = std::make_shared<Seen>();
    model.fit(inputs(8), labels(8),
              {.epochs = 5,
               .validation_data = {inputs(4), labels(4)},
               .callbacks = {seen},
               .verbose = kSilent,
               .validation_freq = freq,
               .initial_epoch = initial_epoch});
    return seen->epochs;
  };
  using Epochs = std::vector<int>;
  EXPECT_EQ(validated({4, 1, 9, 4}), Epochs({1, 4}));  // as Keras: 9 is not reached
  EXPECT_EQ(validated({1, 4}, 2), Epochs({4}));        // numbers of all epochs, not of this fit
  EXPECT_EQ(validated({2}), Epochs({2}));
  EXPECT_EQ(validated(2), Epochs({2, 4}));
  EXPECT_EQ(validated({}), Epochs());
  EXPECT_EQ(validated(Epochs({3, 5})), Epochs({3, 5}));
}

TEST(Validation, ParamsAreWhatFitWasTold) {
  Sequential model = compiled_model();
  const Tensor x = inputs(10), y = labels(10);
  const auto told = [&](const FitOptions& options) { return model.fit(x, y, options).params; };
  FitParams params = told({.epochs = 5, .batch_size = 4, .verbose = kSilent, .initial_epoch = 3});
  EXPECT_EQ(params.verbose, kSilent);
  EXPECT_EQ(params.epochs, 5);
  EXPECT_EQ(params.steps, 3);
  ::testing::internal::CaptureStdout();
  params = told({.verbose = Verbose::kLine, .steps_per_epoch = 1});
  const FitParams settled = told({});
  ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(params.verbose, Verbose::kLine);
  EXPECT_EQ(params.steps, 1);
  EXPECT_NE(settled.verbose, Verbose::kAuto);
  const auto some = Dataset::from_tensor_slices({x, y}).filter([](const Element&) { return true; });
  params = model.fit(some.batch(5), {.epochs = 2, .verbose = kSilent}).params;
  EXPECT_FALSE(params.steps.has_value());  // as Keras, although the second epoch knew
}

TEST(Validation, WorkersPredictTheirPartsOfABatch) {
  testing::run_with_deadline(std::chrono::seconds(60), [] {
    const Tensor x = inputs(5);
    testing::Workers(2, 2).each([&](const Strategy& strategy) {
      const auto scope = strategy.scope();
      Sequential model = compiled_model();
      const Tensor kernel = model.get_weights()[0];
      EXPECT_TRUE(model.predict_on_batch(x).allclose(x.matmul(kernel)));
      EXPECT_TRUE(
          model.predict_on_batch(x.narrow(0, 0, 1)).allclose(x.narrow(0, 0, 1).matmul(kernel)));
      const int rows = strategy.extended().layout().worker() == 0 ? 4 : 5;
      expect_error<FailedPrecondition>({"[predict_on_batch]", "4 rows", "5 rows"},
                                       [&] { model.predict_on_batch(x.narrow(0, 0, rows)); });
    });
  });
}

TEST(Validation, MistakesAreNamed) {
  Sequential model = compiled_model();
  const Tensor x = inputs(6), y = labels(6);
  const auto expect_refused = [&](const std::string& text, const FitOptions& options) {
    expect_error<InvalidArgument>({text}, [&] { model.fit(x, y, options); });
  };
  const Dataset batches = Dataset::from_tensor_slices({x, y}).batch(2);
  expect_refused("[fit] expected no validation_batch_size with a dataset to validate on, got 3",
                 {.validation_data = batches, .validation_batch_size = 3});
  expect_refused("[fit] expected no validation_batch_size without validation_data, got 3",
                 {.validation_batch_size = 3});
  expect_refused("[fit] expected validation_batch_size > 0, got 0",
                 {.validation_data = {x, y}, .validation_batch_size = 0});
  expect_refused("[fit] expected validation_batch_size > 0, got -1",
                 {.validation_batch_size = -1, .validation_split = 0.5});
  expect_refused("[fit, validation] expected as many labels as inputs, got 6 inputs and 4 labels",
                 {.validation_data = {x, labels(4)}});
  expect_refused("[fit, validation] expected sample_weight to have a row for each of the 6 rows",
                 {.validation_data = {x, y, ones({4})}});
  expect_refused("[fit, validation] expected rows of data as x, got an undefined tensor",
                 {.validation_data = {Tensor(), y}});
  expect_refused("[fit] expected validation_split or validation_data, got both",
                 {.validation_data = {x, y}, .validation_split = 0.5});
  expect_error<InvalidArgument>({"[fit] expected validation_freq > 0, got 0"},
                                [] { ValidationFreq(0); });
  expect_error<InvalidArgument>({"[fit] expected epochs from 1 on in validation_freq, got 0"}, [] {
    ValidationFreq({1, 0});
  });
  expect_error<InvalidArgument>({"[predict_on_batch] expected rows of data as x, got an undefined"},
                                [&] { model.predict_on_batch(Tensor()); });
  expect_error<InvalidArgument>({"[predict_on_batch] expected a batch of at least 1 row"},
                                [&] { model.predict_on_batch(inputs(0)); });
}

}  // namespace
}  // namespace cohort::keras
