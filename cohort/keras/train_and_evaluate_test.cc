// SPDX-License-Identifier: Apache-2.0
//
// An evaluator that follows checkpoints, as a thread here; tests/multi_worker has processes.
#include "cohort/keras/train_and_evaluate.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <thread>

#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/keras/keras.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::testing::expect_error;
using cohort::testing::run_with_deadline;
using cohort::testing::strategy_of;

Dataset rows_to_follow() {
  const Tensor x = (arange(60).to(kFloat32) * 0.37).sin().reshape({20, 3});
  return Dataset::from_tensor_slices({x, x.sum(1, true)}).batch(5);
}

Sequential model_to_follow() {
  Sequential model({InputLayer({3}), Dense(1)});
  model.compile({.optimizer = Adam({.learning_rate = 0.1}), .loss = "mse"});
  return model;
}

struct TrainAndEvaluate : cohort::testing::FolderTest {};

TEST_F(TrainAndEvaluate, TheSidecarEvaluatesWhatIsNewestUntilTheLast) {
  run_with_deadline(std::chrono::seconds(60), [&] {
    Logs expected;
    std::jthread trainer([&] {
      Sequential model = model_to_follow();
      int64_t finished = 0, other = 7;
      CheckpointManager manager(
          Checkpoint({{"model", model}, {"finished", &finished}, {"other", &other}}), path("x"));
      for (int i = 0; i < 4; ++i) {
        model.fit(rows_to_follow(), {.verbose = Verbose::kSilent});
        finished = i == 3 ? 1 : 0;
        expected = model.evaluate(rows_to_follow(), {.verbose = Verbose::kSilent});
        manager.save();
      }
    });
    Sequential model = model_to_follow();
    SidecarEvaluator evaluator(
        model, rows_to_follow(), path("x"),
        {.verbose = Verbose::kSilent, .poll_every = std::chrono::milliseconds(1)});
    const Logs last = evaluator.start();
    trainer.join();
    EXPECT_EQ(last.number("loss"), expected.number("loss"));
  });
}

TEST_F(TrainAndEvaluate, WithoutAClusterItDoesBoth) {
  Sequential model = model_to_follow();
  const auto result = train_and_evaluate(
      model, path("run"), {rows_to_follow(), {.epochs = 3, .verbose = Verbose::kSilent}},
      {rows_to_follow(), {.verbose = Verbose::kSilent}});
  EXPECT_EQ(result.history["val_loss"].size(), 3U);
  EXPECT_EQ(result.evaluation.number("loss"), result.history["val_loss"].back());
  // Started again, there is nothing left to train, and the evaluator sees the end at once.
  Sequential again = model_to_follow();
  const auto second = train_and_evaluate(
      again, path("run"), {rows_to_follow(), {.epochs = 3, .verbose = Verbose::kSilent}},
      {rows_to_follow(), {.verbose = Verbose::kSilent}});
  EXPECT_TRUE(second.history.epoch.empty());
  EXPECT_EQ(second.evaluation.number("loss"), result.evaluation.number("loss"));
  Sequential follower = model_to_follow();
  SidecarEvaluator evaluator(
      follower, rows_to_follow(), path("run"),
      {.verbose = Verbose::kSilent, .poll_every = std::chrono::milliseconds(1)});
  EXPECT_EQ(evaluator.start().number("loss"), result.evaluation.number("loss"));
}

// What an earlier training has left says that it has finished.
TEST_F(TrainAndEvaluate, AFolderMayBeUsedAgain) {
  const auto train = [&](int epochs) {
    Sequential model = model_to_follow();
    return train_and_evaluate(model, path("run"),
                              {rows_to_follow(), {.epochs = epochs, .verbose = Verbose::kSilent}},
                              {rows_to_follow(), {.verbose = Verbose::kSilent}});
  };
  const Logs old = train(1).evaluation;
  run_with_deadline(std::chrono::seconds(60), [&] {
    std::promise<void> has_evaluated;
    std::once_flag once;
    const auto tell = LambdaCallback(
        {.on_test_end = [&](Logs&) { std::call_once(once, [&] { has_evaluated.set_value(); }); }});
    Logs expected;
    std::jthread trainer([&] {
      has_evaluated.get_future().wait();
      expected = train(4).evaluation;
    });
    Sequential model = model_to_follow();
    SidecarEvaluator evaluator(model, rows_to_follow(), path("run"),
                               {.callbacks = {tell},
                                .verbose = Verbose::kSilent,
                                .poll_every = std::chrono::milliseconds(500)});
    const Logs last = evaluator.start();
    trainer.join();
    EXPECT_EQ(last.number("loss"), expected.number("loss"));
    EXPECT_NE(last.number("loss"), old.number("loss"));
  });
}

TEST_F(TrainAndEvaluate, ACheckpointWithoutTheModelIsNoEvaluation) {
  int64_t other = 7;
  CheckpointManager(Checkpoint({{"other", &other}}), path("x")).save();
  Sequential model = model_to_follow();
  SidecarEvaluator evaluator(model, rows_to_follow(), path("x"), {.verbose = Verbose::kSilent});
  expect_error<FailedPrecondition>({"every value", "model/dense"}, [&] { evaluator.start(); });
  expect_error<InvalidArgument>({"folder"}, [&] { SidecarEvaluator(model, rows_to_follow(), ""); });
}

}  // namespace
}  // namespace cohort::keras
