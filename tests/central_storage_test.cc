// SPDX-License-Identifier: Apache-2.0
//
// Central storage trains as mirrored copies do, bit by bit, and as one replica does.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "cohort/keras/metrics/metrics.h"
#include "cohort/strategy/replica_context.h"
#include "tests/small_training.h"

namespace cohort::proof {
namespace {

constexpr int64_t kRows = 300;  // the last batch is partial
constexpr int64_t kBatch = 32;

std::vector<Device> cpus(int replicas) {
  std::vector<Device> devices;
  for (int i = 0; i < replicas; ++i) devices.emplace_back("CPU:" + std::to_string(i));
  return devices;
}

Strategy central(int replicas) {
  return CentralStorageStrategy({.compute_devices = cpus(replicas), .parameter_device = "CPU:0"});
}

struct Rule {
  const char* name;
  keras::Optimizer (*make)();
};
const Rule kRules[] = {
    {"sgd", [] { return keras::Optimizer(keras::SGD({.learning_rate = 0.05, .momentum = 0.9})); }},
    {"adam", [] { return keras::Optimizer(keras::Adam({.learning_rate = 0.001})); }},
    {"clipped",
     [] { return keras::Optimizer(keras::SGD({.learning_rate = 0.05, .global_clipnorm = 0.5})); }},
};

struct Trained {
  std::vector<Tensor> weights;
  double accuracy = 0;
};

Trained fit(const Strategy& strategy, const Rule& rule) {
  set_seed(5);
  const auto scope = strategy.scope();
  keras::Sequential model(mlp());
  model.compile({.optimizer = rule.make(),
                 .loss = keras::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {keras::SparseCategoricalAccuracy()}});
  const Dataset data = ten_classes({kRows, kFeatures}).dataset().batch(kBatch);
  model.fit(data, {.epochs = 3, .verbose = keras::Verbose::kSilent});
  return {model.get_weights(), model.evaluate(data, {.verbose = keras::Verbose::kSilent})
                                   .number("sparse_categorical_accuracy")};
}

Trained loop(const Strategy& strategy, const Rule& rule) {
  set_seed(5);
  const auto scope = strategy.scope();
  keras::Sequential model(mlp());
  const keras::Optimizer optimizer = rule.make();
  const keras::SparseCategoricalCrossentropy loss(
      {.from_logits = true, .reduction = keras::Reduction::kNone});
  const Dataset data = ten_classes({kRows, kFeatures}).dataset().batch(kBatch);
  for (const auto& batch : strategy.distribute_dataset(data)) {
    int64_t global = 0;
    for (const Element& part : batch) global += part.rows();
    strategy.run(
        [&](const Tensor& x, const Tensor& y) {
          GradientTape tape;
          const Tensor mean = compute_average_loss(loss(y, model(x, {.training = true})),
                                                   {.global_batch_size = global});
          optimizer.apply_gradients(tape.gradient(mean, model.trainable_variables()));
        },
        batch);
  }
  return {model.get_weights()};
}

class CentralStorage : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  int replicas() const { return std::get<0>(GetParam()); }
  const Rule& rule() const { return kRules[std::get<1>(GetParam())]; }

  void expect_equal(Trained (*train)(const Strategy&, const Rule&)) {
    const Trained one = train(strategy_of(1), rule());
    const Trained mirrored = train(strategy_of(replicas()), rule());
    const Trained got = train(central(replicas()), rule());
    EXPECT_TRUE(same_bits(got.weights, mirrored.weights))
        << worst_difference(got.weights, mirrored.weights);
    EXPECT_LT(worst_difference(got.weights, one.weights), 1e-3);
    EXPECT_DOUBLE_EQ(got.accuracy, mirrored.accuracy);
  }
};

TEST_P(CentralStorage, FitsAsMirrored) { expect_equal(fit); }
TEST_P(CentralStorage, LoopsAsMirrored) { expect_equal(loop); }

INSTANTIATE_TEST_SUITE_P(All, CentralStorage,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Range(0, 3)),
                         [](const auto& test) {
                           return std::string(kRules[std::get<1>(test.param)].name) + "_" +
                                  std::to_string(std::get<0>(test.param));
                         });

}  // namespace
}  // namespace cohort::proof
