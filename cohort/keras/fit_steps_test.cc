// SPDX-License-Identifier: Apache-2.0
//
// Where the epochs of fit begin and end in the data, as in Keras.
#include <gtest/gtest.h>

#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"

namespace cohort::keras {
namespace {

constexpr Verbose kSilent = Verbose::kSilent;

Dataset ten_batches() {
  const Tensor x = arange(40, kFloat32).reshape({20, 2}).sin();
  return Dataset::from_tensor_slices({x, x.sum(1, true) + 1}).batch(2);
}

TEST(Fit, GoesOnWhereTheLastEpochStoppedIfStepsAreGiven) {
  Sequential model({Dense(1)});
  model.compile({.optimizer = SGD({.learning_rate = 0.0}), .loss = "mse"});
  // 10 batches, as in Keras: epochs of 4, 4, and 2 where the data ends; the next one begins anew.
  std::vector<int64_t> steps;
  const LambdaCallback count({.on_epoch_begin = [&](int) { steps.push_back(0); },
                              .on_train_batch_end = [&](int64_t, Logs&) { ++steps.back(); }});
  ::testing::internal::CaptureStderr();
  const History history = model.fit(
      ten_batches(), {.epochs = 5, .callbacks = {count}, .verbose = kSilent, .steps_per_epoch = 4});
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(history.epoch, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(steps, (std::vector<int64_t>{4, 4, 2, 4, 4}));
  EXPECT_EQ(history["loss"][0], history["loss"][3]);
  EXPECT_NE(text.find("ran out of data after 2 of 4 steps"), std::string::npos) << text;
  const History endless =
      model.fit(ten_batches().repeat(), {.epochs = 5, .verbose = kSilent, .steps_per_epoch = 4});
  EXPECT_EQ(endless.epoch.size(), 5u);
}

TEST(Fit, StartsAnewWhereAnEpochUsedUpTheData) {
  Sequential model({Dense(1, {.kernel_initializer = "zeros"})});
  model.compile({.optimizer = SGD({.learning_rate = 0.0}), .loss = "mse"});
  const Dataset ten = ten_batches();
  const History whole = model.fit(ten, {.epochs = 3, .verbose = kSilent, .steps_per_epoch = 10});
  ASSERT_EQ(whole.epoch.size(), 3u);
  const History halves = model.fit(ten, {.epochs = 4, .verbose = kSilent, .steps_per_epoch = 5});
  ASSERT_EQ(halves.epoch.size(), 4u);
  const auto& loss = halves.history.at("loss");
  EXPECT_NE(loss[0], loss[1]);
  EXPECT_EQ(loss[0], loss[2]);
  EXPECT_EQ(loss[1], loss[3]);
  // No epoch is left without steps where only the end of the data tells its size.
  const Dataset unknown = ten.filter([](const Element&) { return true; });
  for (const int64_t steps : {5, 10, 20}) {
    const History each =
        model.fit(unknown, {.epochs = 3, .verbose = kSilent, .steps_per_epoch = steps});
    ASSERT_EQ(each.epoch.size(), 3u);
    EXPECT_EQ(each["loss"][0], each["loss"][2]);
    EXPECT_GT(each["loss"][1], 0);
  }
}

}  // namespace
}  // namespace cohort::keras
