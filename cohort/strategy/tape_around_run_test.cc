// SPDX-License-Identifier: Apache-2.0
//
// A gradient tape outside of run: it differentiates what all replicas have computed.
#include <gtest/gtest.h>

#include <optional>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;

const std::vector<Device> kThree = {"CPU:0", "CPU:1", "CPU:2"};

std::vector<Strategy> strategies() {
  return {MirroredStrategy(kThree), CentralStorageStrategy({.compute_devices = kThree})};
}

double id() { return get_replica_context().replica_id_in_sync_group(); }

TEST(TapeAroundRun, SumsWhatAllReplicasContribute) {
  for (const Strategy& strategy : strategies()) {
    const auto scope = strategy.scope();
    const Variable v(3.0);
    const Variable unused(1.0);
    GradientTape tape;
    const PerReplica<Tensor> squares = strategy.run([&] { return v * v; });
    const Tensor total = strategy.reduce(ReduceOp::kSum, squares);
    const Gradients g = tape.gradient(total, std::vector<Variable>{v, unused});
    EXPECT_EQ(g[0].gradient.as_tensor().item<float>(), 18);
    EXPECT_FALSE(g[1].gradient.has_value());
  }
}

TEST(TapeAroundRun, WeighsEachReplicasOwnLoss) {
  for (const Strategy& strategy : strategies()) {
    const auto scope = strategy.scope();
    const Variable v(ones({2}));
    GradientTape tape({.persistent = true});
    const PerReplica<Tensor> losses = strategy.run([&] { return (v * (id() + 1)).sum(); });
    const Tensor mean = strategy.reduce(ReduceOp::kMean, losses);
    EXPECT_EQ(to_vector<float>(tape.gradient(mean, v)), (std::vector<float>{2, 2}));
    EXPECT_EQ(to_vector<float>(tape.gradient(losses[2], v)), (std::vector<float>{3, 3}));
  }
}

// A graph of gradients on all replicas alike, with a tape of each inside.
TEST(TapeAroundRun, HasSecondDerivativesOfEveryReplica) {
  for (const Strategy& strategy : strategies()) {
    const auto scope = strategy.scope();
    const Variable v(2.0);
    GradientTape outer;
    const PerReplica<Tensor> slopes = strategy.run([&] {
      GradientTape inner;
      const Tensor cube = v * v * v * (id() + 1);
      return inner.gradient(cube, v);
    });
    const Tensor total = strategy.reduce(ReduceOp::kSum, slopes);
    EXPECT_EQ(total.item<float>(), 12 * 6);
    EXPECT_EQ(outer.gradient(total, v).item<float>(), 12 * 6);
  }
}

// Its gradient is one that all replicas take part in.
TEST(TapeAroundRun, SaysWhereTheGradientOfACollectiveIsTaken) {
  const MirroredStrategy strategy(kThree);
  const auto scope = strategy.scope();
  const Variable v(3.0);
  GradientTape tape;
  const PerReplica<Tensor> sums =
      strategy.run([&] { return get_replica_context().all_reduce(ReduceOp::kSum, v * v); });
  EXPECT_THROW(tape.gradient(sums[0], v), FailedPrecondition);
}

TEST(TapeAroundRun, IsNotForTheReplicasThemselves) {
  for (const Strategy& strategy : strategies()) {
    const auto scope = strategy.scope();
    const Variable v(3.0);
    GradientTape tape({.persistent = true});
    EXPECT_THROW(strategy.run([&] { tape.gradient(v * v, v); }), FailedPrecondition);
    const PerReplica<Tensor> all = strategy.run([&] {
      GradientTape own;
      return own.gradient(v * v, v);
    });
    EXPECT_EQ(all[2].item<float>(), 6);
  }
}

// As writes: what a variable of one strategy is to another, nobody has said.
TEST(TapeAroundRun, RefusesAnotherStrategysVariables) {
  const MirroredStrategy other(std::vector<Device>{"CPU:0", "CPU:1"});
  for (const Strategy& strategy : strategies()) {
    std::optional<Scope> scope(strategy.scope());
    const Variable v(ones({2}), {.name = "kernel"});
    scope.reset();
    {
      const auto others = other.scope();
      GradientTape tape;
      const Tensor loss = (v * 2).sum();
      expect_error<FailedPrecondition>(
          {"[gradient_tape.gradient] expected the scope of ", "over CPU:0, CPU:1",
           "over CPU:0, CPU:1, CPU:2", "a gradient of its variable \"kernel\"",
           "strategies cannot be mixed"},
          [&] { tape.gradient(loss, v); });
    }
    other.run([&] {
      GradientTape tape;
      expect_error<FailedPrecondition>({"\"kernel\"", "3"}, [&] { tape.gradient(scalar(1), v); });
    });
    GradientTape tape;  // in no scope it can be told whose it is
    EXPECT_EQ(to_vector<float>(tape.gradient((v * 2).sum(), v)), (std::vector<float>{2, 2}));
  }
}

}  // namespace
}  // namespace cohort
