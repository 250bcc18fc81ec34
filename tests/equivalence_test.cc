// SPDX-License-Identifier: Apache-2.0
//
// The core property: R replicas of b rows each train as one replica of B = R b rows does.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "tests/small_training.h"

namespace cohort::proof {
namespace {

using keras::Layer;
using keras::Optimizer;
using keras::Reduction;

constexpr int64_t kSteps = 50;

enum class Loop { kCustom, kFit };

struct Network {
  const char* name;
  std::vector<Layer> (*layers)();
  Shape input;
};
const Network kNetworks[] = {{"mlp", mlp, {kFeatures}}, {"cnn", cnn, {kPixels, kPixels, 1}}};

// Rates at which each of them descends smoothly. Adaptive rules divide by the gradient's size, so
// that a rounding of a gradient near zero is a visible part of the step.
struct Rule {
  const char* name;
  Optimizer (*make)();
  double tolerance;  // in float32
};
const Rule kRules[] = {
    {"sgd", [] { return Optimizer(keras::SGD({.learning_rate = 0.05})); }, 1e-6},
    {"momentum", [] { return Optimizer(keras::SGD({.learning_rate = 0.01, .momentum = 0.9})); },
     1e-6},
    {"nesterov",
     [] {
       return Optimizer(keras::SGD({.learning_rate = 0.01, .momentum = 0.9, .nesterov = true}));
     },
     1e-6},
    {"adam", [] { return Optimizer(keras::Adam({.learning_rate = 0.001})); }, 1e-4},
    {"adamw", [] { return Optimizer(keras::AdamW({.learning_rate = 0.001})); }, 1e-4},
    {"rmsprop", [] { return Optimizer(keras::RMSprop({.learning_rate = 0.001})); }, 1e-4},
    {"adagrad", [] { return Optimizer(keras::Adagrad({.learning_rate = 0.01})); }, 1e-6},
    {"adadelta", [] { return Optimizer(keras::Adadelta({.learning_rate = 0.1})); }, 1e-4},
    {"adamax", [] { return Optimizer(keras::Adamax({.learning_rate = 0.001})); }, 1e-4},
    {"nadam", [] { return Optimizer(keras::Nadam({.learning_rate = 0.001})); }, 1e-4},
    {"ftrl", [] { return Optimizer(keras::Ftrl({.learning_rate = 0.01})); }, 1e-5},
    // A sign: two learning rates apart where a rounding decides it.
    {"lion", [] { return Optimizer(keras::Lion({.learning_rate = 0.0001})); }, 2e-3},
    {"accumulated",
     [] {
       return Optimizer(
           keras::SGD({.learning_rate = 0.05, .momentum = 0.5, .gradient_accumulation_steps = 3}));
     },
     1e-6},
};

// The dtype of layers that name none, for its lifetime.
class FloatX {
 public:
  explicit FloatX(DType dtype) : before_(keras::floatx()) { keras::set_floatx(dtype); }
  ~FloatX() { keras::set_floatx(before_); }
  FloatX(const FloatX&) = delete;
  FloatX& operator=(const FloatX&) = delete;

 private:
  const DType before_;
};

struct Setting {
  const Network& network;
  const Rule& rule;
  DType dtype;
  Loop loop;
  int64_t batch = 16;
  int64_t rows = 16 * kSteps;
  std::vector<double> weights = {};  // of two replicas
};

DistributedDataset distribute(const Strategy& strategy, const Setting& setting, const Data& data) {
  InputOptions options;
  if (strategy.num_replicas_in_sync() == 2) options.replica_weights = setting.weights;
  return strategy.distribute_dataset(data.dataset().batch(setting.batch), options);
}

void train_in_a_loop(const Strategy& strategy, keras::Sequential& model, const Setting& setting,
                     const Data& data) {
  const Optimizer optimizer = setting.rule.make();
  const keras::SparseCategoricalCrossentropy loss(
      {.from_logits = true, .reduction = Reduction::kNone});
  for (const auto& batch : distribute(strategy, setting, data)) {
    int64_t global = 0;
    for (const Element& part : batch) global += part.rows();
    const auto step = [&](const Tensor& x, const Tensor& y) {
      GradientTape tape;
      const Tensor mean = compute_average_loss(loss(y, model(x, {.training = true})),
                                               {.global_batch_size = global});
      optimizer.apply_gradients(tape.gradient(mean, model.trainable_variables()));
    };
    strategy.run(step, batch);
  }
}

// The weights before and after.
struct Trained {
  std::vector<Tensor> before, after;
};

Trained train(int replicas, const Setting& setting) {
  const FloatX floatx(setting.dtype);
  set_seed(5);
  const Strategy strategy = strategy_of(replicas);
  const auto scope = strategy.scope();
  keras::Sequential model(setting.network.layers());
  Shape shape = setting.network.input;
  shape.insert(shape.begin(), setting.rows);
  const Data data = ten_classes(shape, setting.dtype);
  Trained trained;
  trained.before = model.get_weights();
  for (const Tensor& weight : trained.before) EXPECT_EQ(weight.scalar_type(), setting.dtype);
  if (setting.loop == Loop::kCustom) {
    train_in_a_loop(strategy, model, setting, data);
  } else {
    model.compile({.optimizer = setting.rule.make(),
                   .loss = keras::SparseCategoricalCrossentropy({.from_logits = true})});
    const DistributedDataset batches = distribute(strategy, setting, data);
    model.fit(batches,
              {.verbose = keras::Verbose::kSilent, .steps_per_epoch = batches.cardinality()});
  }
  trained.after = model.get_weights();
  return trained;
}

class Equivalence : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  const Network& network() const { return kNetworks[std::get<0>(GetParam())]; }
  const Rule& rule() const { return kRules[std::get<1>(GetParam())]; }

  // One replica in a custom loop is what all others are held against.
  void expect_equal(DType dtype, double tolerance) {
    const Trained one = train(1, {network(), rule(), dtype, Loop::kCustom});
    for (std::size_t i = 0; i < one.after.size(); ++i) {
      ASSERT_GT(worst_difference({one.before[i]}, {one.after[i]}), 1e-3) << "variable " << i;
    }
    for (Loop loop : {Loop::kCustom, Loop::kFit}) {
      for (int replicas : {1, 2, 4}) {
        const Trained many = train(replicas, {network(), rule(), dtype, loop});
        ASSERT_TRUE(same_bits(many.before, one.before));
        const double difference = worst_difference(many.after, one.after);
        const char* name = loop == Loop::kFit ? "fit" : "loop";
        EXPECT_LE(difference, tolerance) << replicas << " replicas, " << name;
        std::printf("%s %s %s %s replicas=%d difference=%.2e\n", network().name, rule().name,
                    dtype_name(dtype), name, replicas, difference);
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, Equivalence,
                         ::testing::Combine(::testing::Range(0, 2), ::testing::Range(0, 13)),
                         [](const auto& test) {
                           return std::string(kNetworks[std::get<0>(test.param)].name) + "_" +
                                  kRules[std::get<1>(test.param)].name;
                         });

TEST_P(Equivalence, HoldsInFloat32) { expect_equal(kFloat32, rule().tolerance); }

TEST_P(Equivalence, HoldsInFloat64) { expect_equal(kFloat64, 1e-12); }

// 7 rows over 4 replicas: 2, 2, 2, 1; the last batch, of 2 rows, leaves replicas 2 and 3 empty.
TEST_P(Equivalence, HoldsForUnevenBatches) {
  for (Loop loop : {Loop::kCustom, Loop::kFit}) {
    const Setting setting{network(), rule(), kFloat64, loop, 7, 7 * 10 + 2};
    const Trained one = train(1, setting);
    for (int replicas : {2, 4}) {
      EXPECT_LE(worst_difference(train(replicas, setting).after, one.after), 1e-12) << replicas;
    }
  }
}

// 5 and 2 of 7 rows; the last batch, of one row, leaves replica 1 empty.
TEST_P(Equivalence, HoldsForReplicasOfUnlikeWeight) {
  for (Loop loop : {Loop::kCustom, Loop::kFit}) {
    const Setting setting{network(), rule(), kFloat64, loop, 7, 7 * 10 + 1, {2.6, 1}};
    const Trained one = train(1, setting);
    EXPECT_LE(worst_difference(train(2, setting).after, one.after), 1e-12);
  }
}

TEST(OneReplica, OfAMirroredStrategyIsTheDefaultStrategy) {
  for (const Network& network : kNetworks) {
    for (Loop loop : {Loop::kCustom, Loop::kFit}) {
      const Setting setting{network, kRules[3], kFloat32, loop};
      EXPECT_TRUE(same_bits(train(0, setting).after, train(1, setting).after)) << network.name;
    }
  }
}

}  // namespace
}  // namespace cohort::proof
