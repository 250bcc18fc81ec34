// SPDX-License-Identifier: Apache-2.0
//
// BatchNormalization over all replicas: what one replica makes of all rows. Conformance T30.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <vector>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/keras/keras.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::testing::run_with_deadline;
using cohort::testing::strategy_of;
using cohort::testing::Workers;
using Tensors = std::vector<Tensor>;

constexpr auto kTimeLimit = std::chrono::seconds(60);

// Of one replica.
struct Seen {
  Tensor y, dx, dgamma, dbeta;
};

struct Outcome {
  std::vector<Seen> replicas;
  Tensor mean, variance;
};

BatchNormalization synchronized(const Shape& input) {
  BatchNormalization layer({.momentum = 0.75,
                            .beta_initializer = Constant(0.25),
                            .gamma_initializer = Constant(1.5),
                            .synchronized = true,
                            .dtype = "float64",
                            .name = "norm"});
  layer.base().ensure_built(input);
  return layer;
}

// A piece for each replica; those of a worker begin at `first`. `masks`: none, or one for each.
Outcome play(const Strategy& strategy, const Tensors& pieces, const Tensors& weights,
             std::size_t first = 0, const Tensors& masks = {}) {
  const auto scope = strategy.scope();
  const BatchNormalization layer = synchronized({kUnknownDim, 2, 3});
  const auto count = static_cast<std::size_t>(strategy.extended().num_local_replicas());
  Outcome out;
  out.replicas.resize(count);
  strategy.run([&] {
    const auto r = static_cast<std::size_t>(std::max(0, current_replica()));
    GradientTape tape({.persistent = true});
    Tensor x = pieces[first + r].clone();
    tape.watch(x);
    CallArgs args{.training = true};
    if (!masks.empty()) args.mask = masks[first + r];
    const Tensor y = layer(x, args);
    const Tensor sum = (y * weights[first + r]).sum();
    out.replicas[r] = {y.detach(), tape.gradient(sum, x).clone(),
                       tape.gradient(sum, layer.variables()[0]).clone(),
                       tape.gradient(sum, layer.variables()[1]).clone()};
  });
  out.mean = layer.variables()[2].value().clone();
  out.variance = layer.variables()[3].value().clone();
  return out;
}

Tensors split(const Tensor& rows, const std::vector<int64_t>& sizes) {
  Tensors pieces;
  int64_t at = 0;
  for (const int64_t size : sizes) {
    pieces.push_back(rows.narrow(0, at, size));
    at += size;
  }
  return pieces;
}

void expect_close(const Tensor& got, const Tensor& want, const char* what) {
  ASSERT_EQ(shape_of(got), shape_of(want)) << what;
  EXPECT_TRUE(got.allclose(want, 1e-9, 1e-10)) << what << ": " << got << " for " << want;
}

// All rows on one replica against the same rows on several.
class SynchronizedStatistics : public ::testing::TestWithParam<std::vector<int64_t>> {
 protected:
  SynchronizedStatistics() {
    int64_t count = 0;
    for (const int64_t size : GetParam()) count += size;
    // The mean is far from 0 against the deviation.
    rows_ = (arange(count * 6).to(kFloat64) * 0.7).sin().reshape({count, 2, 3}) + 100;
    weights_ = (arange(count * 6).to(kFloat64) * 1.3).cos().reshape({count, 2, 3});
    one_ = play(strategy_of(1), {rows_}, {weights_});
  }

  void expect_as_one(const std::vector<Seen>& replicas) {
    ASSERT_EQ(replicas.size(), GetParam().size());
    const Seen& whole = one_.replicas[0];
    const Tensors y = split(whole.y, GetParam()), dx = split(whole.dx, GetParam());
    Tensor dgamma = zeros({3}, kFloat64), dbeta = zeros({3}, kFloat64);
    for (std::size_t r = 0; r < replicas.size(); ++r) {
      expect_close(replicas[r].y, y[r], "y");
      expect_close(replicas[r].dx, dx[r], "dx");
      dgamma = dgamma + replicas[r].dgamma;
      dbeta = dbeta + replicas[r].dbeta;
    }
    expect_close(dgamma, whole.dgamma, "dgamma");
    expect_close(dbeta, whole.dbeta, "dbeta");
  }

  Tensor rows_, weights_;
  Outcome one_;
};

TEST_P(SynchronizedStatistics, AreThoseOfAllRows) {
  run_with_deadline(kTimeLimit, [&] {
    const Outcome several = play(strategy_of(static_cast<int>(GetParam().size())),
                                 split(rows_, GetParam()), split(weights_, GetParam()));
    expect_as_one(several.replicas);
    expect_close(several.mean, one_.mean, "moving mean");
    expect_close(several.variance, one_.variance, "moving variance");
  });
}

// Replica 0 has nothing that counts; golden_layers_test.cc holds one replica against Keras.
TEST_P(SynchronizedStatistics, AreThoseOfTheRowsThatCount) {
  Tensor mask = (arange(rows_.size(0) * 2) % 3).ne(1).reshape({rows_.size(0), 2});
  mask.narrow(0, 0, GetParam()[0]).fill_(scalar(0, kBool));
  one_ = play(strategy_of(1), {rows_}, {weights_}, 0, {mask});
  const auto count = static_cast<int>(GetParam().size());
  run_with_deadline(kTimeLimit, [&] {
    const Outcome several = play(strategy_of(count), split(rows_, GetParam()),
                                 split(weights_, GetParam()), 0, split(mask, GetParam()));
    expect_as_one(several.replicas);
    expect_close(several.mean, one_.mean, "moving mean");
    expect_close(several.variance, one_.variance, "moving variance");
  });
  const Tensor counted = rows_.masked_select(mask.unsqueeze(-1)).reshape({-1, 3});
  expect_close(one_.mean, counted.mean(0) * 0.25, "moving mean of what counts");
}

TEST_P(SynchronizedStatistics, AreThoseOfAllRowsOfAllWorkers) {
  const std::size_t local = GetParam().size() == 4 ? 2 : 1;
  const auto workers_here = static_cast<int>(GetParam().size() / local);
  run_with_deadline(kTimeLimit, [&] {
    const Workers workers(workers_here, static_cast<int>(local));
    const auto outcomes = workers.run([&](const Strategy& strategy) {
      const auto worker = static_cast<std::size_t>(strategy.extended().layout().worker());
      return play(strategy, split(rows_, GetParam()), split(weights_, GetParam()), worker * local);
    });
    std::vector<Seen> replicas;
    for (const Outcome& own : outcomes) {
      replicas.insert(replicas.end(), own.replicas.begin(), own.replicas.end());
      expect_close(own.mean, one_.mean, "moving mean");
      expect_close(own.variance, one_.variance, "moving variance");
    }
    expect_as_one(replicas);
  });
}

// Even, uneven, with one and with two that are empty; the first one, too.
INSTANTIATE_TEST_SUITE_P(Pieces, SynchronizedStatistics,
                         ::testing::Values(std::vector<int64_t>{4, 4}, std::vector<int64_t>{5, 2},
                                           std::vector<int64_t>{3, 2, 0},
                                           std::vector<int64_t>{0, 1, 6},
                                           std::vector<int64_t>{2, 0, 3, 0}));

TEST(SynchronizedNormalization, WithoutAnyRowsLeavesItsStatisticsAlone) {
  const Tensor none = zeros({0, 2, 3}, kFloat64);
  const Outcome out = play(strategy_of(2), {none, none}, {none, none});
  EXPECT_EQ(shape_of(out.replicas[1].y), (Shape{0, 2, 3}));
  EXPECT_EQ(to_vector<double>(out.mean), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(to_vector<double>(out.variance), (std::vector<double>{1, 1, 1}));
}

TEST(SynchronizedNormalization, WithoutAnyRowThatCountsLeavesItsStatisticsAlone) {
  const Tensor x = ones({2, 2, 3}, kFloat64), no = zeros({2, 2}, kBool);
  for (const int replicas : {1, 2}) {
    const Outcome out = play(strategy_of(replicas), {x, x}, {x, x}, 0, {no, no});
    EXPECT_EQ(to_vector<double>(out.mean), (std::vector<double>{0, 0, 0}));
    EXPECT_EQ(to_vector<double>(out.variance), (std::vector<double>{1, 1, 1}));
  }
  const BatchNormalization layer = synchronized({kUnknownDim, 2, 3});
  cohort::testing::expect_error<InvalidArgument>({"mask", "one axis less"}, [&] {
    layer(x, {.training = true, .mask = Element(zeros({2, 2, 3}, kBool))});
  });
}

TEST(SynchronizedNormalization, UsesTheMovingStatisticsWhenFrozenOrNotTraining) {
  const MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto scope = strategy.scope();
  const BatchNormalization layer = synchronized({kUnknownDim, 3});
  const PerReplica<Tensor> x({full({2, 3}, 4, kFloat64), full({1, 3}, 8, kFloat64)});
  const auto mean = [&](bool training) {
    strategy.run([&](const Tensor& t) { layer(t, {.training = training}); }, x);
    return layer.variables()[2].value().mean().item<double>();
  };
  EXPECT_EQ(mean(false), 0);
  EXPECT_NEAR(mean(true), 0.25 * 16 / 3, 1e-12);
  layer.base().set_trainable(false);
  EXPECT_NEAR(mean(true), 0.25 * 16 / 3, 1e-12);
}

TEST(SynchronizedNormalization, EndsWithTheReplicaThatFails) {
  run_with_deadline(kTimeLimit, [] {
    const Strategy strategy = strategy_of(3);
    const auto scope = strategy.scope();
    const BatchNormalization layer = synchronized({kUnknownDim, 3});
    const auto step = [&](bool fails) {
      strategy.run([&] {
        if (fails && current_replica() == 1) throw std::runtime_error("no image");
        layer(ones({2, 3}, kFloat64), {.training = true});
      });
    };
    EXPECT_THROW(step(true), std::runtime_error);
    EXPECT_EQ(layer.variables()[2].value().sum().item<double>(), 0);
    step(false);
    EXPECT_NEAR(layer.variables()[2].value().mean().item<double>(), 0.25, 1e-12);
  });
}

// 10 rows in batches of 4: the last has 2, of three replicas one is empty.
Tensors trained(const Strategy& strategy) {
  set_seed(3);
  const auto scope = strategy.scope();
  Sequential model({InputLayer({3}), Dense(4, {.activation = "tanh", .name = "in"}),
                    BatchNormalization({.synchronized = true, .name = "norm"}),
                    Dense(1, {.name = "out"})});
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = MeanSquaredError()});
  const Tensor x = (arange(30).to(kFloat32) * 0.9).sin().reshape({10, 3});
  const Dataset rows = Dataset::from_tensor_slices({x, x.sum(1, true)}).batch(4);
  model.fit(rows, {.epochs = 3, .verbose = Verbose::kSilent});
  Tensors weights;
  for (const Tensor& weight : model.get_weights()) weights.push_back(weight.clone());
  return weights;
}

TEST(SynchronizedNormalization, FitsAlikeOnAnyNumberOfReplicas) {
  run_with_deadline(kTimeLimit, [] {
    const Tensors one = trained(strategy_of(1));
    const auto expect_as_one = [&](const Tensors& got) {
      ASSERT_EQ(got.size(), one.size());
      for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_TRUE(got[i].allclose(one[i], 1e-4, 1e-5)) << i << ": " << got[i] << one[i];
      }
    };
    expect_as_one(trained(strategy_of(2)));
    expect_as_one(trained(strategy_of(3)));
  });
}

}  // namespace
}  // namespace cohort::keras
