// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C, learning rates and losses that are no numbers, and options that fit nothing.
#include "cohort/keras/interrupt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <semaphore>
#include <thread>

#include "cohort/keras/keras.h"
#include "cohort/keras/progress_bar.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

constexpr Verbose kSilent = Verbose::kSilent;

Dataset data_of(int64_t rows, int64_t batch) {
  const Tensor x = arange(rows * 2, kFloat32).view({rows, 2}) * 0.01;
  return Dataset::from_tensor_slices({x, x.sum(-1, true)}).batch(batch);
}

struct Presser : CallbackBase {
  int64_t at = 2;
  bool ended = false;
  void on_train_batch_end(int64_t step, Logs&) override { press(step); }
  void on_test_batch_end(int64_t step, Logs&) override { press(step); }
  void on_predict_batch_end(int64_t step) override { press(step); }
  void on_train_end() override { ended = true; }
  void press(int64_t step) const {
    if (step == at) ::raise(SIGINT);
  }
};

struct Net {
  Net() { model.compile({.optimizer = SGD({.learning_rate = 0.01}), .loss = "mse"}); }
  Sequential model{{Dense(1)}};
};

TEST(Interrupts, FitThrowsSoThatNothingIsSavedUnasked) {
  Net net;
  const auto press = std::make_shared<Presser>();
  bool saved = false;
  testing::expect_error<Interrupted>({"OnInterrupt::kReturn"}, [&] {
    net.model.fit(data_of(40, 4), {.epochs = 3, .callbacks = {press}, .verbose = kSilent});
    saved = true;  // where a program has its save_weights
  });
  EXPECT_EQ(Interrupted("").code(), ErrorCode::kCancelled);
  EXPECT_FALSE(saved);
  EXPECT_FALSE(press->ended);
  EXPECT_EQ(net.model.optimizer().iterations().value().item<int64_t>(), 3);
  net.model.fit(data_of(8, 4), {.verbose = kSilent});  // usable, and nothing is left of it
}

TEST(Interrupts, FitReturnsWhereItIsToldTo) {
  Net net;
  const auto press = std::make_shared<Presser>();
  const History history = net.model.fit(
      data_of(40, 4),
      {.callbacks = {press}, .verbose = kSilent, .on_interrupt = OnInterrupt::kReturn});
  EXPECT_TRUE(history.interrupted);
  EXPECT_TRUE(press->ended);
}

TEST(Interrupts, AreNotLostAtTheEndOfAnEpoch) {
  struct Late : CallbackBase {
    void on_epoch_end(int, Logs&) override { ::raise(SIGINT); }
  };
  for (const int epochs : {1, 3}) {
    Net net;
    const Callback late = std::make_shared<Late>();
    EXPECT_THROW(
        net.model.fit(data_of(8, 4), {.epochs = epochs, .callbacks = {late}, .verbose = kSilent}),
        Interrupted);
    const History history = net.model.fit(data_of(8, 4), {.epochs = epochs,
                                                          .callbacks = {late},
                                                          .verbose = kSilent,
                                                          .on_interrupt = OnInterrupt::kReturn});
    EXPECT_TRUE(history.interrupted);
    EXPECT_EQ(history.epoch, std::vector<int>{0});
  }
}

TEST(Interrupts, EvaluateAndPredictEndAfterTheStep) {
  Net net;
  net.model.fit(data_of(8, 4), {.verbose = kSilent});
  const auto press = std::make_shared<Presser>();
  EXPECT_THROW(net.model.evaluate(data_of(40, 4), {.callbacks = {press}, .verbose = kSilent}),
               Interrupted);
  EXPECT_THROW(net.model.predict(data_of(40, 4), {.callbacks = {press}, .verbose = kSilent}),
               Interrupted);
  EXPECT_NO_THROW(net.model.evaluate(data_of(40, 4), {.verbose = kSilent}));
}

// Ctrl-C behind the last step.
struct LatePresser : CallbackBase {
  void on_train_end() override { ::raise(SIGINT); }
  void on_test_end(Logs&) override { ::raise(SIGINT); }
  void on_predict_end() override { ::raise(SIGINT); }
};

TEST(Interrupts, AfterTheLastStepAreToldAsWell) {
  Net net;
  const auto press = std::make_shared<LatePresser>();
  const Dataset data = data_of(8, 4);
  EXPECT_THROW(net.model.fit(data, {.callbacks = {press}, .verbose = kSilent}), Interrupted);
  EXPECT_TRUE(
      net.model
          .fit(data,
               {.callbacks = {press}, .verbose = kSilent, .on_interrupt = OnInterrupt::kReturn})
          .interrupted);
  EXPECT_THROW(net.model.evaluate(data, {.callbacks = {press}, .verbose = kSilent}), Interrupted);
  EXPECT_THROW(net.model.predict(data, {.callbacks = {press}, .verbose = kSilent}), Interrupted);
  EXPECT_FALSE(net.model.fit(data, {.verbose = kSilent}).interrupted);
}

struct Holder : CallbackBase {
  std::binary_semaphore inside{0}, go_on{0};
  void on_predict_batch_end(int64_t step) override {
    if (step > 0) return;
    inside.release();
    go_on.acquire();
  }
};

TEST(Interrupts, OfAFitAreNoneOfAPredictOnAnotherThread) {
  Net net, served;
  served.model.fit(data_of(8, 4), {.verbose = kSilent});
  const auto holder = std::make_shared<Holder>();
  std::jthread server([&] {
    EXPECT_NO_THROW(
        served.model.predict(data_of(40, 4), {.callbacks = {holder}, .verbose = kSilent}));
  });
  holder->inside.acquire();
  const auto press = std::make_shared<Presser>();
  const auto fit = [&](std::vector<Callback> callbacks) {
    return net.model.fit(data_of(40, 4), {.callbacks = std::move(callbacks), .verbose = kSilent});
  };
  EXPECT_THROW(fit({press}), Interrupted);
  EXPECT_EQ(fit({}).epoch.size(), 1U);
  EXPECT_THROW(fit({press}), Interrupted) << "and not the end of the process";
  holder->go_on.release();
}

TEST(Interrupts, OfAPredictComeAfterThoseOfAFit) {
  Net net, served;
  served.model.fit(data_of(8, 4), {.verbose = kSilent});
  const auto holder = std::make_shared<Holder>();
  std::jthread server([&] {
    EXPECT_THROW(served.model.predict(data_of(40, 4), {.callbacks = {holder}, .verbose = kSilent}),
                 Interrupted);
  });
  holder->inside.acquire();
  const auto press = std::make_shared<Presser>();
  EXPECT_THROW(net.model.fit(data_of(40, 4), {.callbacks = {press}, .verbose = kSilent}),
               Interrupted);
  ::raise(SIGINT);
  holder->go_on.release();
}

volatile std::sig_atomic_t g_own_handler = 0;

TEST(Interrupts, ThatNobodyHasAnsweredYetEndTheProcessTheSecondTime) {
  struct Twice : CallbackBase {
    void on_train_batch_end(int64_t, Logs&) override {
      ::raise(SIGINT);
      ::raise(SIGINT);
    }
  };
  EXPECT_EXIT(
      {
        Net net;
        net.model.fit(data_of(40, 4),
                      {.callbacks = {std::make_shared<Twice>()}, .verbose = kSilent});
      },
      ::testing::KilledBySignal(SIGINT), "");
}

TEST(Interrupts, AServersOwnHandlerIsCalledDuringPredict) {
  Net net;
  net.model.fit(data_of(8, 4), {.verbose = kSilent});
  const auto before = std::signal(SIGINT, [](int) { g_own_handler = g_own_handler + 1; });
  const auto press = std::make_shared<Presser>();
  EXPECT_NO_THROW(net.model.predict(data_of(40, 4), {.callbacks = {press}, .verbose = kSilent}));
  EXPECT_EQ(g_own_handler, 1);
  std::signal(SIGINT, before);
}

TEST(LearningRates, ThatAreNoneAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double rate : {-0.1, nan, infinity, -infinity}) {
    EXPECT_THROW(SGD({.learning_rate = rate}), InvalidArgument) << rate;
    EXPECT_THROW(Adam({.learning_rate = rate}), InvalidArgument) << rate;
    const SGD sgd;
    EXPECT_THROW(sgd.set_learning_rate(rate), InvalidArgument) << rate;
    EXPECT_EQ(sgd.learning_rate(), 0.01);
    Sequential model({Dense(1)});
    model.compile(
        {.optimizer = SGD({.learning_rate = [=](int64_t step) { return step < 2 ? 0.1 : rate; }}),
         .loss = "mse"});
    testing::expect_error<InvalidArgument>(
        {"for step 2"}, [&] { model.fit(data_of(16, 4), {.verbose = kSilent}); });
  }
  EXPECT_NO_THROW(SGD({.learning_rate = 0.0}));
}

Dataset with_nan_in_batch(int64_t bad, int64_t batches) {
  Tensor y = zeros({batches * 4, 1});
  y.narrow(0, bad * 4, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  return Dataset::from_tensor_slices({zeros({batches * 4, 2}), y}).batch(4);
}

TEST(Losses, ThatAreNoNumbersAreToldOnce) {
  for (const int replicas : {1, 2}) {
    const Strategy strategy =
        replicas == 1 ? get_strategy() : Strategy(MirroredStrategy({"CPU:0", "CPU:1"}));
    const auto scope = strategy.scope();
    Net net;
    ::testing::internal::CaptureStderr();
    net.model.fit(with_nan_in_batch(2, 5), {.epochs = 2, .verbose = kSilent});
    const std::string text = ::testing::internal::GetCapturedStderr();
    const std::size_t at = text.find("the loss became nan in epoch 1, batch 3");
    EXPECT_NE(at, std::string::npos) << text;
    EXPECT_EQ(text.find("the loss became", at + 1), std::string::npos) << text;
  }
}

TEST(TerminateOnNaN, EndsFitOrThrows) {
  const auto steps = [](TerminateOnNaNOptions options) {
    Net net;
    const auto count = std::make_shared<Presser>();
    ::testing::internal::CaptureStdout();
    net.model.fit(with_nan_in_batch(2, 5),
                  {.epochs = 2, .callbacks = {TerminateOnNaN(options)}, .verbose = kSilent});
    EXPECT_EQ(::testing::internal::GetCapturedStdout(),
              "Batch 2: Invalid loss, terminating training\n");
    return net.model.optimizer().iterations().value().item<int64_t>();
  };
  EXPECT_EQ(steps({}), 3);
  Net net;
  EXPECT_THROW(
      net.model.fit(with_nan_in_batch(2, 5),
                    {.callbacks = {TerminateOnNaN({.raise_error = true})}, .verbose = kSilent}),
      FailedPrecondition);
}

TEST(BatchSizes, BesideADatasetAreRefused) {
  Net net;
  const Dataset data = data_of(8, 4);
  EXPECT_THROW(net.model.fit(data, {.batch_size = 4, .verbose = kSilent}), InvalidArgument);
  EXPECT_THROW(net.model.evaluate(data, {.batch_size = 4, .verbose = kSilent}), InvalidArgument);
  EXPECT_THROW(net.model.predict(data, {.batch_size = 4, .verbose = kSilent}), InvalidArgument);
  const Tensor x = zeros({8, 2});
  EXPECT_NO_THROW(net.model.fit(x, zeros({8, 1}), {.batch_size = 4, .verbose = kSilent}));
  EXPECT_NO_THROW(net.model.predict(x, {.batch_size = 4, .verbose = kSilent}));
  EXPECT_THROW(net.model.predict(x, {.batch_size = 0, .verbose = kSilent}), InvalidArgument);
}

}  // namespace
}  // namespace cohort::keras
