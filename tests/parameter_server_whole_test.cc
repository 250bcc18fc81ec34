// SPDX-License-Identifier: Apache-2.0
//
// Optimizers that look at a variable as a whole, of variables on parameter servers: the bits of one
// process where each variable is in one piece, and its numbers but for rounding where it is cut.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/cohort.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/coordinator/test_cluster.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/temporary_folder.h"

namespace cohort::keras {
namespace {

using cohort::internal::coordinator::TestServers;
using cohort::testing::expect_error;

using Make = std::function<Optimizer()>;
std::vector<Make> all_optimizers() {
  return {
      [] { return Lamb({.learning_rate = 0.1}); },
      [] { return Lamb({.learning_rate = 0.1, .weight_decay = 0.01, .clipnorm = 0.5}); },
      [] { return Adafactor({.learning_rate = 0.1}); },
      [] { return Adafactor({.learning_rate = 0.1, .weight_decay = 0.02, .clipvalue = 0.4}); },
      [] { return Muon({.learning_rate = 0.1}); },
      [] { return Muon({.learning_rate = 0.1, .exclude_layers = {"cube"}, .nesterov = false}); }};
}

std::vector<Variable> make_variables(DType dtype) {
  std::vector<Variable> out;
  const auto add = [&](const char* name, const Shape& shape) {
    int64_t size = 1;
    for (const int64_t axis : shape) size *= axis;
    out.emplace_back((arange(size).to(dtype) * 0.37).sin().reshape(shape),
                     VariableOptions{.name = name});
  };
  add("number", {});
  add("bias", {5});
  add("tall", {9, 4});
  add("wide", {4, 6});
  add("cube", {5, 3, 2});
  return out;
}

Gradients gradients_of(int step, const std::vector<Variable>& variables) {
  std::vector<GradientAndVariable> out;
  for (const Variable& v : variables) {
    const Tensor g =
        (arange(v.value().numel()).to(v.dtype()) * step * 0.3).cos().reshape(v.shape());
    if (v.name() != "tall") {
      out.push_back({g, v});
      continue;
    }
    // Rows, one of them twice.
    out.push_back({IndexedSlices{.values = g.narrow(0, 0, 3),
                                 .indices = tensor({7, 2, 7}, kInt64),
                                 .dense_shape = {9, 4}},
                   v});
  }
  return out;
}

std::vector<Tensor> train(const Strategy& strategy, const Optimizer& optimizer, DType dtype) {
  const auto scope = strategy.scope();
  const std::vector<Variable> variables = make_variables(dtype);
  for (int step = 1; step <= 3; ++step) {
    optimizer.apply_gradients(gradients_of(step, variables));
  }
  std::vector<Tensor> out;
  for (const Variable& v : variables) out.push_back(v.value().clone());
  for (const Variable& v : optimizer.variables()) out.push_back(v.value().clone());
  return out;
}

TEST(WholeOptimizers, OnServersTrainAsInOneProcess) {
  const TestServers servers(2);
  int which = 0;
  for (const Make& make : all_optimizers()) {
    for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
      const std::vector<Tensor> here = train(OneDeviceStrategy("CPU:0"), make(), dtype);
      for (const int shards : {1, 3}) {
        const Strategy strategy = servers.coordinator(fixed_shards_partitioner(shards));
        const std::vector<Tensor> there = train(strategy, make(), dtype);
        ASSERT_EQ(there.size(), here.size());
        for (std::size_t i = 0; i < here.size(); ++i) {
          // Sums of squares are added by shards; a last place of bfloat16 is 2^-8.
          const double close = dtype == kBFloat16 ? 1e-2 : 1e-6;
          EXPECT_TRUE(shards == 1 ? there[i].equal(here[i])
                                  : there[i].allclose(here[i], close, close))
              << which << " in " << shards << " of " << dtype_name(dtype) << ", value " << i;
        }
      }
    }
    ++which;
  }
}

TEST(WholeOptimizers, KeepTheirStateInOtherShards) {
  const cohort::testing::TemporaryFolder folder;
  const std::string path = folder / "ckpt";
  const TestServers servers(2);
  const auto with = [&](const Strategy& strategy, const auto& use) {
    const auto scope = strategy.scope();
    const std::vector<Variable> variables = make_variables(kFloat32);
    const Optimizer optimizer = Adafactor({.learning_rate = 0.1});
    optimizer.build(variables);
    use(variables, optimizer);
    std::vector<Tensor> out;
    for (const Variable& v : variables) out.push_back(v.value().clone());
    for (const Variable& v : optimizer.variables()) out.push_back(v.value().clone());
    return out;
  };
  const auto checkpoint_of = [](const std::vector<Variable>& v, const Optimizer& optimizer) {
    return Checkpoint({{"number", v[0]},
                       {"bias", v[1]},
                       {"tall", v[2]},
                       {"wide", v[3]},
                       {"cube", v[4]},
                       {"optimizer", optimizer}});
  };
  const auto saved = with(servers.coordinator(fixed_shards_partitioner(3)),
                          [&](const std::vector<Variable>& v, const Optimizer& optimizer) {
                            optimizer.apply_gradients(gradients_of(1, v));
                            checkpoint_of(v, optimizer).save(path);
                          });
  const auto expect_restored = [&](const Strategy& strategy) {
    const auto restored =
        with(strategy, [&](const std::vector<Variable>& v, const Optimizer& optimizer) {
          checkpoint_of(v, optimizer).restore(path);
        });
    for (std::size_t i = 0; i < saved.size(); ++i) EXPECT_TRUE(restored[i].equal(saved[i])) << i;
  };
  expect_restored(servers.coordinator(fixed_shards_partitioner(2)));
  expect_restored(OneDeviceStrategy("CPU:0"));
}

// By functions that a worker runs, which finds the slots that the coordinator has made.
TEST(WholeOptimizers, FitOnAClusterIsThatOfOneProcess) {
  const Tensor x = (arange(96).to(kFloat32) * 0.37).sin().reshape({32, 3});
  const auto fit = [&](const Strategy& strategy, const Optimizer& optimizer) {
    set_seed(3);
    clear_session();
    const auto scope = strategy.scope();
    Sequential model({Dense(6, {.activation = "tanh"}), Dense(1)});
    model.compile({.optimizer = optimizer, .loss = "mse"});
    model.fit(Dataset::from_tensor_slices({x, x.sum(1, true)}).batch(8),
              {.epochs = 2, .verbose = Verbose::kSilent});
    EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 8);
    return model.get_weights();
  };
  const cohort::testing::TestCluster cluster(1, 2);
  for (const char* name : {"lamb", "adafactor", "muon"}) {
    const std::vector<Tensor> here = fit(OneDeviceStrategy("CPU:0"), name);
    const ParameterServerStrategy strategy(
        {.cluster_resolver = std::make_shared<SimpleClusterResolver>(cluster.spec())});
    const std::vector<Tensor> there = fit(strategy, name);
    ASSERT_EQ(there.size(), here.size());
    for (std::size_t i = 0; i < here.size(); ++i) {
      EXPECT_TRUE(there[i].equal(here[i])) << name << ' ' << i;
    }
  }
}

TEST(WholeOptimizers, RefuseSyncReplicas) {
  TestServers servers(1);
  servers.sync_pushes = {.needed = 2};
  const Strategy strategy = servers.coordinator();
  const auto scope = strategy.scope();
  for (const char* name : {"lamb", "adafactor", "muon"}) {
    expect_error<Unimplemented>({name, "sync_replicas", "Adam"},
                                [&] { Optimizer(name).build(make_variables(kFloat32)); });
  }
}

}  // namespace
}  // namespace cohort::keras
