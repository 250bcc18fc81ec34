// SPDX-License-Identifier: Apache-2.0
//
// Batches of fewer rows than replicas.
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/keras/layers/layers.h"
#include "cohort/keras/modules.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/strategy/strategies.h"

namespace cohort::keras {
namespace {

TEST(EmptyReplica, AddsNothingToAMeanOfTheLossFunctionsOwn) {
  for (const bool exact : {true, false}) {
    const MirroredStrategy strategy(std::vector<Device>{"CPU:0", "CPU:1", "CPU:2"});
    const auto scope = strategy.scope();
    Sequential model({Dense(1, {.use_bias = false, .kernel_initializer = "ones"})});
    model.compile({.optimizer = SGD({.learning_rate = 0.1}),
                   .loss = [](const Tensor& y, const Tensor& p) { return (p - y).square().mean(); },
                   .exact_uneven_batches = exact});
    const Dataset one_row = Dataset::from_tensor_slices({ones({1, 1}), zeros({1, 1})}).batch(3);
    const History history = model.fit(one_row, {.verbose = Verbose::kSilent});
    EXPECT_NEAR(history.history.at("loss")[0], 1, 1e-6);
    EXPECT_NEAR(model.get_weights()[0].item<float>(), exact ? 0.8 : 1 - 0.2 / 3, 1e-6);
  }
}

TEST(EmptyReplica, AddsNothingToLossesAndLayersThatLibTorchRefusesEmpty) {
  const MirroredStrategy strategy(std::vector<Device>{"CPU:0", "CPU:1"});
  const auto scope = strategy.scope();
  Sequential reads({Dense(4)});
  reads.compile({.optimizer = "sgd", .loss = losses::CTC()});
  const Tensor sounds = ones({5, 6, 2}), words = ones({5, 2}, kInt32);
  const History history = reads.fit(sounds, words, {.batch_size = 4, .verbose = Verbose::kSilent});
  EXPECT_TRUE(std::isfinite(history["loss"][0]));
  Sequential hears({MelSpectrogram({.fft_length = 16, .sequence_stride = 8}), Flatten(), Dense(1)});
  hears.compile({.optimizer = "sgd", .loss = "mse"});
  EXPECT_NO_THROW(
      hears.fit(ones({5, 64}), zeros({5, 1}), {.batch_size = 4, .verbose = Verbose::kSilent}));
}

}  // namespace
}  // namespace cohort::keras
