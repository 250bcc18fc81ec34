// SPDX-License-Identifier: Apache-2.0
//
// Workers that call fit with unlike options, or are at unlike places in it, are told so, and where.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "cohort/keras/keras.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::testing::expect_error;
using cohort::testing::run_with_deadline;
using cohort::testing::Workers;

constexpr auto kLimit = std::chrono::seconds(60);

data::Dataset batches_of(int64_t rows) {
  const Tensor x = (arange(rows * 3).to(kFloat32) * 0.37).sin().reshape({rows, 3});
  return data::Dataset::from_tensor_slices({x, x.sum(1, true) * 0.5 + 1}).batch(12);
}

/// body(model, strategy, whether this is worker 0).
template <class Body>
void on_two_workers(const Body& body) {
  run_with_deadline(kLimit, [&] {
    Workers(2, 1).each([&](const Strategy& strategy) {
      const auto scope = strategy.scope();
      // Names count in the process, which these workers share.
      Sequential model({InputLayer({3}), Dense(1, {.name = "out"})});
      model.compile({.optimizer = SGD(), .loss = "mse"});
      body(model, strategy, strategy.extended().layout().worker() == 0);
      model.fit(batches_of(24), {.verbose = Verbose::kSilent});
    });
  });
}

TEST(WorkerUnlikeFits, A8_OptionsAreCompared) {
  on_two_workers([](Sequential& model, const Strategy&, bool is_first) {
    const auto expect_unlike = [&](const std::string& first, const std::string& other,
                                   const FitOptions& options) {
      expect_error<FailedPrecondition>(
          {"[fit] expected the same", first + " on worker 0", other + " on worker 1"},
          [&] { model.fit(batches_of(24), options); });
    };
    expect_unlike("epochs 1 to 3, of all data each, without validation",
                  "epochs 1 to 2, of all data each, without validation",
                  {.epochs = is_first ? 3 : 2, .verbose = Verbose::kSilent});
    expect_unlike("of 1 steps each, without validation", "of 2 steps each, without validation",
                  {.verbose = Verbose::kSilent, .steps_per_epoch = is_first ? 1 : 2});
    FitOptions validated{.verbose = Verbose::kSilent};
    if (is_first) validated.validation_data = batches_of(12);
    expect_unlike("of all data each, validated after epochs: every 1", "without validation",
                  validated);
    validated.validation_data = batches_of(12);
    validated.validation_freq = is_first ? ValidationFreq({1, 3}) : 2;
    expect_unlike("validated after epochs: [1, 3]", "validated after epochs: every 2", validated);
  });
}

TEST(WorkerUnlikeFits, A8_PlacesAreCompared) {
  on_two_workers([](Sequential& model, const Strategy& strategy, bool is_first) {
    const auto tested = strategy.distribute_dataset(batches_of(12));
    const LambdaCallback looks({.on_epoch_end = [&](int, Logs&) {
      if (is_first) model.evaluate(tested, {.steps = 1, .verbose = Verbose::kSilent});
    }});
    expect_error<FailedPrecondition>(
        {"expected the same place in training", "step 1 of an evaluation on worker 0",
         "the end of epoch 1 on worker 1"},
        [&] { model.fit(batches_of(24), {.callbacks = {looks}, .verbose = Verbose::kSilent}); });
    // Where the others validate.
    struct Looks : CallbackBase {
      std::function<void()> look;
      void on_test_begin() override { look(); }
    };
    const auto inside = std::make_shared<Looks>();
    inside->look = [&] {
      if (is_first) model.evaluate(tested, {.steps = 1, .verbose = Verbose::kSilent});
    };
    expect_error<FailedPrecondition>(
        {"expected the same place in training", "step 1 of an evaluation on worker 0",
         "step 1 of the validation of epoch 1 on worker 1"},
        [&] {
          model.fit(batches_of(24), {.validation_data = batches_of(12),
                                     .callbacks = {inside},
                                     .verbose = Verbose::kSilent});
        });
  });
}

// Each takes its part of a batch that all have.
TEST(WorkerUnlikeFits, A8_BatchesOfOneStepAreCompared) {
  on_two_workers([](Sequential& model, const Strategy&, bool is_first) {
    const int64_t rows = is_first ? 4 : 6;
    expect_error<FailedPrecondition>(
        {"[train_on_batch] expected the same batch", "4 rows on worker 0", "6 rows on worker 1"},
        [&] {
          model.train_on_batch(ones({rows, 3}), ones({rows, 1}));
        });
    expect_error<FailedPrecondition>(
        {"[test_on_batch] expected the same batch", "4 rows on worker 0", "6 rows on worker 1"},
        [&] {
          model.test_on_batch(ones({rows, 3}), ones({rows, 1}));
        });
  });
}

}  // namespace
}  // namespace cohort::keras
