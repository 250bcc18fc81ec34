// SPDX-License-Identifier: Apache-2.0
//
// Synchronous training on parameter servers: several workers' gradients are one update, to the
// numbers of one process that has all their examples. Workers and servers are threads of this
// process.
#include <gtest/gtest.h>

#include "cohort/cohort.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/coordinator/test_cluster.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::internal::coordinator::TestServers;
using cohort::testing::expect_error;
using cohort::testing::TestCluster;

constexpr Verbose kSilent = Verbose::kSilent;
const Tensor kX = (arange(192).to(kFloat32) * 0.37).sin().reshape({64, 3});
const Tensor kY = (kX.sum(1, true) * 0.5).tanh();

struct Outcome {
  std::vector<Tensor> weights;
  int64_t updates = 0;
};

Outcome train(const Strategy& strategy, int64_t batch, int64_t rows = 64) {
  set_seed(3);
  clear_session();
  const auto scope = strategy.scope();
  Sequential model({Dense(6, {.activation = "tanh"}), Dense(1)});
  model.compile({.optimizer = Adam({.learning_rate = 0.05}), .loss = "mse"});
  model.fit(
      Dataset::from_tensor_slices({kX.narrow(0, 0, rows), kY.narrow(0, 0, rows)}).batch(batch),
      {.epochs = 3, .verbose = kSilent});
  return {model.get_weights(), model.optimizer().iterations().value().item<int64_t>()};
}

// A round of steps takes the next batches, one for each worker, with the same weights, and the
// optimizer's rule sees their mean once.
void expect_that_of_one_process(int64_t rows, int64_t updates) {
  const Outcome here = train(OneDeviceStrategy("CPU:0"), 16, rows);
  constexpr int kWorkers = 2;
  const TestCluster cluster(kWorkers, 2);
  const ParameterServerStrategy strategy(
      {.cluster_resolver = std::make_shared<SimpleClusterResolver>(cluster.spec()),
       .staleness_bound = 0,
       .sync_replicas = SyncReplicasOptions{.replicas_to_aggregate = kWorkers}});
  const Outcome there = train(strategy, 16 / kWorkers, rows);
  EXPECT_EQ(here.updates, updates);
  EXPECT_EQ(there.updates, here.updates);
  ASSERT_EQ(there.weights.size(), here.weights.size());
  for (std::size_t i = 0; i < here.weights.size(); ++i) {
    EXPECT_TRUE(there.weights[i].allclose(here.weights[i], 1e-3, 1e-5)) << i;
  }
}
TEST(SyncReplicas, FitIsThatOfOneProcessWithAllWorkersExamples) {
  expect_that_of_one_process(64, 12);
}
// 7 batches for 2 workers: the last one of an epoch is an update by itself.
TEST(SyncReplicas, TheRestOfAnEpochIsAnUpdateOfItsOwn) { expect_that_of_one_process(56, 12); }

TEST(SyncReplicas, AnUpdateIsTheRuleWithTheMeanOnce) {
  const auto gradient = [](int update, int worker) {
    return (arange(3).to(kFloat32) * 0.7 + update + 3 * worker).cos();
  };
  const auto make = [] { return Adam({.learning_rate = 0.1, .weight_decay = 0.01}); };
  const Variable w(ones({3}));
  const Optimizer optimizer = make();
  TestServers servers(2);
  servers.sync_pushes = {.needed = 2};
  struct Worker {
    Strategy strategy;
    Variable w;
    Optimizer optimizer;
  };
  std::vector<Worker> workers;
  for (int i = 0; i < 2; ++i) {
    clear_session();
    const Strategy strategy = servers.worker(i);
    const auto scope = strategy.scope();
    workers.push_back({strategy, Variable(ones({3}), {.name = "w"}), make()});
  }
  for (int update = 0; update < 4; ++update) {
    optimizer.apply_gradients(
        std::vector<GradientAndVariable>{{(gradient(update, 0) + gradient(update, 1)) * 0.5, w}});
    for (int i = 0; i < 2; ++i) {
      const Worker& each = workers[static_cast<std::size_t>(i)];
      const auto scope = each.strategy.scope();
      each.strategy.run([&] {
        each.optimizer.apply_gradients(
            std::vector<GradientAndVariable>{{gradient(update, i), each.w}});
      });
    }
    EXPECT_EQ(to_vector<float>(workers[0].w.value()), to_vector<float>(w.value())) << update;
  }
  EXPECT_EQ(workers[1].optimizer.iterations().value().item<int64_t>(), 4);
}

struct OwnRule : OptimizerBase {
  OwnRule() : OptimizerBase(0.1, "own") {}
  void update(const Variable& variable, const Gradient& gradient) override {
    variable.assign_sub(gradient.as_tensor() * learning_rate());
  }
};

TEST(SyncReplicas, WhatWorkersComputeBesideUpdatesIsRefused) {
  TestServers servers(1);
  servers.sync_pushes = {.needed = 2};
  const Strategy strategy = servers.coordinator();
  const auto scope = strategy.scope();
  const Variable w(1.0, {.name = "w"});
  const Variable kept(1.0, {.name = "kept", .constraint = [](const Tensor& x) { return x.abs(); }});
  const auto expect_refused = [](const char* what, const Optimizer& optimizer, const Variable& v) {
    expect_error<Unimplemented>({what, "sync_replicas"}, [&] {
      optimizer.apply_gradients(std::vector<GradientAndVariable>{{scalar(1), v}});
    });
  };
  expect_refused("use_ema", Adam({.use_ema = true}), w);
  expect_refused("gradient_accumulation_steps", Adam({.gradient_accumulation_steps = 2}), w);
  expect_refused("constraints", Adam(), kept);
  expect_refused("rule of its own", Optimizer(std::make_shared<OwnRule>()), w);
}

TEST(SyncReplicas, OptionsAreChecked) {
  const TestCluster cluster(1, 1);
  const auto resolver = std::make_shared<SimpleClusterResolver>(cluster.spec());
  expect_error<InvalidArgument>({"replicas_to_aggregate", "got 0"}, [&] {
    ParameterServerStrategy({.cluster_resolver = resolver,
                             .sync_replicas = SyncReplicasOptions{.replicas_to_aggregate = 0}});
  });
  expect_error<InvalidArgument>({"staleness_bound", "got -1"}, [&] {
    ParameterServerStrategy({.cluster_resolver = resolver, .staleness_bound = -1});
  });
}

}  // namespace
}  // namespace cohort::keras
