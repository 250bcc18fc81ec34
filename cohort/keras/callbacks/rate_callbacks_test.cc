// SPDX-License-Identifier: Apache-2.0
//
// Callbacks that change the learning rate, against the rates that Keras 3.15 has after each epoch.
#include <gtest/gtest.h>

#include <vector>

#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

struct RateCallbacks : ::testing::Test {
  RateCallbacks() { model_.compile({.optimizer = SGD({.learning_rate = 1.0}), .loss = "mse"}); }

  // The rate after each epoch, of a fit whose val_loss is scripted.
  std::vector<double> rates(const std::vector<double>& losses, const Callback& callback) {
    std::vector<double> out;
    const LambdaCallback script({.on_epoch_end = [&](int epoch, Logs& logs) {
      logs.set("val_loss", losses.at(static_cast<std::size_t>(epoch)));
    }});
    const LambdaCallback watch(
        {.on_epoch_end = [&](int, Logs&) { out.push_back(model_.optimizer().learning_rate()); }});
    history_ = model_.fit(zeros({2, 1}), zeros({2, 1}),
                          {.epochs = static_cast<int>(losses.size()),
                           .callbacks = {script, callback, watch},
                           .verbose = Verbose::kSilent});
    return out;
  }
  using Rates = std::vector<double>;

  Sequential model_{{Dense(1)}};
  History history_;
};

TEST_F(RateCallbacks, APlateauReducesTheRate) {
  EXPECT_EQ(
      rates({3, 2, 2, 2, 2, 2, 2, 1, 1, 1}, ReduceLROnPlateau({.factor = 0.5, .patience = 2})),
      (Rates{1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.125}));
  // What the logs say of an epoch is the rate that it was trained with.
  EXPECT_EQ(history_["learning_rate"], (Rates{1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25}));
}

TEST_F(RateCallbacks, EpochsOfACooldownAreNotCounted) {
  EXPECT_EQ(rates({3, 2, 2, 2, 2, 2, 2, 2, 2, 2},
                  ReduceLROnPlateau({.factor = 0.5, .patience = 2, .cooldown = 2})),
            (Rates{1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125}));
}

TEST_F(RateCallbacks, ThereIsALeastRate) {
  const Rates got =
      rates({3, 3, 3, 3}, ReduceLROnPlateau({.factor = 0.25, .patience = 1, .min_lr = 0.125}));
  EXPECT_EQ(got, (Rates{1, 0.25, 0.125, 0.125}));
}

TEST_F(RateCallbacks, SmallImprovementsDoNotCount) {
  EXPECT_EQ(rates({3, 2.9, 2.8, 2.7, 2.6},
                  ReduceLROnPlateau({.factor = 0.5, .patience = 2, .min_delta = 0.15})),
            (Rates{1, 1, 1, 1, 1}));
  EXPECT_EQ(rates({3, 3, 3}, ReduceLROnPlateau({.factor = 0.5, .patience = 0})),
            (Rates{1, 0.5, 0.25}));
}

TEST_F(RateCallbacks, WhatAPlateauCountedIsKept) {
  const ReduceLROnPlateau first({.factor = 0.5, .patience = 3}),
      second({.factor = 0.5, .patience = 3});
  rates({2, 2, 2}, first);
  const std::string state = first.base().save_state();
  const LambdaCallback restore({.on_train_begin = [&] { second.base().restore_state(state); }});
  std::vector<double> after;
  model_.fit(
      zeros({2, 1}), zeros({2, 1}),
      {.callbacks = {LambdaCallback(
                         {.on_epoch_end = [](int, Logs& logs) { logs.set("val_loss", 2.0); }}),
                     second, restore},
       .verbose = Verbose::kSilent});
  // Its on_train_begin came first: the third epoch without an improvement is the one here.
  EXPECT_EQ(model_.optimizer().learning_rate(), 0.5);
}

TEST_F(RateCallbacks, AFunctionGivesTheRateOfAnEpoch) {
  const LearningRateScheduler halve(
      [](int epoch, double rate) { return epoch == 0 ? rate : rate / 2; });
  EXPECT_EQ(rates({0, 0, 0}, halve), (Rates{1, 0.5, 0.25}));
  EXPECT_EQ(history_["learning_rate"], (Rates{1, 0.5, 0.25}));
  ::testing::internal::CaptureStdout();
  rates({0}, LearningRateScheduler([](int, double) { return 0.125; }, {.verbose = 1}));
  EXPECT_NE(::testing::internal::GetCapturedStdout().find(
                "Epoch 1: LearningRateScheduler setting learning rate to 0.125.\n"),
            std::string::npos);
}

TEST_F(RateCallbacks, RefuseWhatCannotBe) {
  EXPECT_THROW(ReduceLROnPlateau({.factor = 1}), InvalidArgument);
  EXPECT_THROW(ReduceLROnPlateau({.patience = -1}), InvalidArgument);
  EXPECT_THROW(ReduceLROnPlateau({.mode = "best"}), InvalidArgument);
  EXPECT_THROW(LearningRateScheduler(nullptr), InvalidArgument);
  EXPECT_THROW(rates({0}, LearningRateScheduler([](int, double) { return -1.0; })),
               InvalidArgument);
  model_.compile(
      {.optimizer = SGD({.learning_rate = ExponentialDecay(1, 10, 0.5)}), .loss = "mse"});
  EXPECT_THROW(rates({0}, LearningRateScheduler([](int, double) { return 1.0; })),
               FailedPrecondition);
}

}  // namespace
}  // namespace cohort::keras
