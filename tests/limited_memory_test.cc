// SPDX-License-Identifier: Apache-2.0
//
// Programs train within the address space that they are allowed (ulimit -v): what LibTorch needs
// and one gigabyte more.
#include <gtest/gtest.h>

#include "cohort/testing/child.h"
#include "small_training.h"

namespace cohort::proof {
namespace {

using testing::kCanLimitChildren;
using testing::status_of_child;

constexpr std::size_t kGigabyte = std::size_t{1} << 30;

/// The loss after some steps of SGD with momentum, against the one before: it has to fall.
bool training_works(int replicas, const std::vector<keras::Layer>& layers, const Data& data) {
  const Strategy strategy = strategy_of(replicas);
  const Scope scope = strategy.scope();
  keras::Sequential model(layers);
  model.compile({.optimizer = keras::SGD({.learning_rate = 0.05, .momentum = 0.9}),
                 .loss = keras::SparseCategoricalCrossentropy({.from_logits = true})});
  const keras::History history =
      model.fit(data.dataset().batch(100), {.epochs = 3, .verbose = keras::Verbose::kSilent});
  const auto& losses = history.history.at("loss");
  return losses.back() < losses.front();
}

class LimitedMemory : public ::testing::TestWithParam<int> {};

TEST_P(LimitedMemory, ASmallModelTrains) {
  if (!kCanLimitChildren) GTEST_SKIP() << "needs a limit of the address space";
  EXPECT_EQ(status_of_child([] {
              testing::limit_address_space(kGigabyte);
              return training_works(GetParam(), mlp(), ten_classes({400, kFeatures})) ? 0 : 1;
            }),
            0);
}

// 25 MB of parameters, as much of gradients and of momentum, for every replica: more than the first
// regions, which take a part of what is left.
TEST_P(LimitedMemory, AModelOfSeveralRegionsTrains) {
  if (!kCanLimitChildren) GTEST_SKIP() << "needs a limit of the address space";
  EXPECT_EQ(status_of_child([] {
              testing::limit_address_space(kGigabyte);
              const std::vector<keras::Layer> layers = {
                  keras::InputLayer({kFeatures}), keras::Dense(1500, {.activation = "relu"}),
                  keras::Dense(1500, {.activation = "relu"}),
                  keras::Dense(1500, {.activation = "relu"}), keras::Dense(10)};
              return training_works(GetParam(), layers, ten_classes({400, kFeatures})) ? 0 : 1;
            }),
            0);
}

INSTANTIATE_TEST_SUITE_P(Replicas, LimitedMemory, ::testing::Values(0, 1, 2));

}  // namespace
}  // namespace cohort::proof
