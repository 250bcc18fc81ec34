// SPDX-License-Identifier: Apache-2.0
//
// The README's program on its real data.
#include <gtest/gtest.h>

#include <cstdio>

#include "cohort/data/catalog/catalog.h"
#include "tests/small_training.h"

namespace cohort::proof {
namespace {

// Fails, with the name of the package, where the data is missing: a proof is not to be skipped.
TEST(FashionMnist, OneEpochOnTwoReplicasLearns) {
  set_seed(1);
  const auto [train, test] = data::fashion_mnist({.flatten = true});
  const Strategy strategy = strategy_of(2);
  const auto scope = strategy.scope();
  keras::Sequential model({keras::Dense(256, {.activation = "relu"}),
                           keras::Dense(256, {.activation = "relu"}), keras::Dense(10)});
  model.compile({.optimizer = keras::Adam(),
                 .loss = keras::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {keras::SparseCategoricalAccuracy()}});
  const keras::History history =
      model.fit(train.shuffle(60000).batch(128),
                {.validation_data = test.batch(1000), .verbose = keras::Verbose::kSilent});

  ASSERT_EQ(history.history.at("val_sparse_categorical_accuracy").size(), 1u);
  const double accuracy = history.history.at("val_sparse_categorical_accuracy")[0];
  EXPECT_GE(accuracy, 0.80);
  EXPECT_GE(history.history.at("sparse_categorical_accuracy")[0], 0.75);
  EXPECT_EQ(model.count_params(), 784 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10);
  EXPECT_EQ(model.optimizer().iterations().value().item<int64_t>(), 469);  // ceil(60000 / 128)
  std::printf("val_sparse_categorical_accuracy=%.4f\n", accuracy);
}

}  // namespace
}  // namespace cohort::proof
