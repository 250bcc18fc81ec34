// SPDX-License-Identifier: Apache-2.0
//
// Batches of fewer rows than replicas.
#include <gtest/gtest.h>

#include "cohort/keras/layers/layers.h"
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

}  // namespace
}  // namespace cohort::keras
