// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;

CentralStorageStrategy two() {
  return CentralStorageStrategy({.compute_devices = {"CPU:0", "CPU:1"}});
}
const std::vector<Device> kTwo = {"CPU:0", "CPU:1"};

TEST(CentralStorage, PlacesItsDevices) {
  const auto strategy = two();
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_EQ(strategy.extended().worker_devices(), kTwo);
  EXPECT_EQ(strategy.extended().parameter_devices(), std::vector<Device>{"CPU:0"});
  const CentralStorageStrategy one({.compute_devices = {"CPU:1"}});
  EXPECT_EQ(one.extended().parameter_devices(), std::vector<Device>{"CPU:1"});
  const CentralStorageStrategy elsewhere({.compute_devices = kTwo, .parameter_device = "CPU:3"});
  EXPECT_EQ(elsewhere.extended().parameter_devices(), std::vector<Device>{"CPU:3"});
  EXPECT_GE(CentralStorageStrategy().num_replicas_in_sync(), 1);
  expect_error<InvalidArgument>({"[CentralStorageStrategy]", "each device once", "CPU:0 twice"},
                                [] {
                                  CentralStorageStrategy({.compute_devices = {"CPU:0", "CPU:0"}});
                                });
  expect_error<Unimplemented>({"[CentralStorageStrategy] expected CPU devices, got TPU:0"}, [] {
    CentralStorageStrategy({.compute_devices = kTwo, .parameter_device = "TPU:0"});
  });
}

TEST(CentralStorage, KeepsOneCopyThatReplicasWriteTogether) {
  const CentralStorageStrategy strategy({.compute_devices = kTwo, .parameter_device = "CPU:3"});
  const auto scope = strategy.scope();
  const Variable sum(scalar(1), {.aggregation = Aggregation::kSum});
  EXPECT_EQ(sum.components().size(), 1U);
  EXPECT_EQ(sum.device(), Device("CPU:3"));
  strategy.run(
      [&] { sum.assign_add(scalar(get_replica_context().replica_id_in_sync_group() + 1)); });
  EXPECT_EQ(sum.value().item<float>(), 4);
  const Variable none(scalar(1), {.name = "none"});
  expect_error<InvalidArgument>({"[variable.assign]", "\"none\"", "aggregation"},
                                [&] { strategy.run([&] { none.assign(scalar(2)); }); });
  none.assign(5.0);
  EXPECT_EQ(strategy.run([&] { return none.value().item<float>(); })[1], 5);
}

TEST(CentralStorage, UpdatesOnceWithThePrimaries) {
  const auto strategy = two();
  const auto scope = strategy.scope();
  const Variable v(scalar(0));
  int calls = 0;
  const auto add = [&](const Variable& part, const Tensor& x) {
    ++calls;
    part.assign_add(x);
    return x.item<float>();
  };
  StrategyExtended& extended = strategy.extended();
  const auto out = extended.update(v, add, PerReplica<Tensor>({scalar(1), scalar(2)}));
  EXPECT_EQ(out.size(), 1U);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(v.value().item<float>(), 1);
  strategy.run([&] {
    const int id = get_replica_context().replica_id_in_sync_group();
    EXPECT_EQ(extended.update(v, add, scalar(10 * (id + 1))).local(), 10);
  });
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(v.value().item<float>(), 11);
  const std::vector<Variable> all = {v};
  EXPECT_EQ(extended.non_slot_devices(all), std::vector<Device>{"CPU:0"});
  EXPECT_EQ(extended.update_non_slot(
                Device("CPU:0"), [](int x) { return x; }, PerReplica<int>({3, 4}))[0],
            3);
}

TEST(CentralStorage, ReducesAndDifferentiatesAsMirrored) {
  const auto strategy = two();
  const auto scope = strategy.scope();
  const Variable w(tensor({1, 2}));
  const auto gradients = strategy.run(
      [&](const Tensor& x) {
        GradientTape tape;
        return tape.gradient((w * x).sum(), w).clone();
      },
      PerReplica<Tensor>({tensor({1, 2}), tensor({3, 4})}));
  EXPECT_EQ(to_vector<float>(strategy.reduce(ReduceOp::kSum, gradients)),
            (std::vector<float>{4, 6}));
}

}  // namespace
}  // namespace cohort
