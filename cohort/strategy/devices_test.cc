// SPDX-License-Identifier: Apache-2.0
//
// Strategies over devices that are no CPUs ask those devices' backends.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/data/dataset.h"
#include "cohort/runtime/internal/test_backend.h"
#include "cohort/strategy/multi_worker_mirrored.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/variable.h"

namespace cohort {
namespace {

using internal::runtime::TestBackend;
using testing::expect_error;

TEST(StrategyDevices, RunsAndMeetingsAreOnThem) {
  TestBackend gpus;
  MirroredStrategy strategy({"GPU:0", "GPU:1"});
  const auto scope = strategy.scope();
  const Variable v(ones({4}), {.aggregation = Aggregation::kSum});
  EXPECT_GT(gpus.log().count("view GPU:0"), 0);
  EXPECT_GT(gpus.log().count("view GPU:1"), 0);
  gpus.log().take();
  const auto result = strategy.run([&] {
    const ReplicaContext context = get_replica_context();
    EXPECT_EQ(context.devices()[0].kind(), DeviceKind::kGpu);
    v.assign_add(full({4}, context.replica_id_in_sync_group() + 1.0));
    return context.all_reduce(ReduceOp::kSum, v.value());
  });
  EXPECT_EQ(to_vector<float>(v.value()), (std::vector<float>(4, 4)));
  EXPECT_EQ(to_vector<float>(result[1]), (std::vector<float>(4, 8)));
  for (const char* device : {"GPU:0", "GPU:1"}) {
    EXPECT_EQ(gpus.log().count(str_cat("enter ", device)), 1);
    EXPECT_EQ(gpus.log().count(str_cat("leave ", device)), 1);
    // The start, the write and the reduction (two meetings each), the end.
    EXPECT_EQ(gpus.log().count(str_cat("publish ", device)), 1 + 2 + 2 + 1);
  }
  EXPECT_EQ(to_vector<float>(strategy.reduce(ReduceOp::kSum, result)), (std::vector<float>(4, 16)));
}

TEST(StrategyDevices, HaveToBeSupported) {
  EXPECT_THROW(OneDeviceStrategy("TPU:0"), Unimplemented);
  const TestBackend gpus(2);
  expect_error<InvalidArgument>({"[MirroredStrategy] expected one of GPU:0 ... GPU:1, got GPU:2"},
                                [] {
                                  MirroredStrategy({"GPU:0", "GPU:2"});
                                });
}

TEST(StrategyDevices, AreAllGpusWhereThereAreSome) {
  const TestBackend gpus(3);
  const std::vector<Device> all = {"GPU:0", "GPU:1", "GPU:2"};
  EXPECT_EQ(MirroredStrategy().extended().worker_devices(), all);
  const CentralStorageStrategy central;
  EXPECT_EQ(central.extended().worker_devices(), all);
  EXPECT_EQ(central.extended().parameter_devices(), std::vector<Device>{"GPU:0"});
  const MultiWorkerMirroredStrategy worker;
  EXPECT_EQ(worker.extended().worker_devices(), all);
  expect_error<Unimplemented>(
      {"[CentralStorageStrategy]", "share the memory of the parameter device CPU:0, got GPU:0"},
      [] { CentralStorageStrategy({.parameter_device = "CPU:0"}); });
}

TEST(StrategyDevices, GetTheHostsTensorsAmongArguments) {
  TestBackend gpus;
  MirroredStrategy strategy({"GPU:0", "GPU:1"});
  const Tensor mine = ones({2});
  gpus.log().take();
  const auto is_mine = strategy.run([&](const Tensor& x) { return x.is_same(mine); }, mine);
  EXPECT_FALSE(is_mine[0]);
  EXPECT_EQ(gpus.log().count("upload GPU:0"), 1);
  EXPECT_EQ(gpus.log().count("upload GPU:1"), 1);

  const PerReplica<Tensor> parts({full({2}, 1), full({2}, 2)});
  const std::map<std::string, std::vector<Tensor>> nest = {{"a", {mine, mine}}};
  const auto sum = strategy.run(
      [](const Tensor& x, double factor, const auto& more, const std::pair<Tensor, int>& pair) {
        return x * factor + more.at("a")[1] + pair.first;
      },
      parts, 10.0, nest, std::pair(PerReplica<Tensor>({mine, mine}), 1));
  EXPECT_EQ(to_vector<float>(sum[1]), (std::vector<float>{22, 22}));
  EXPECT_EQ(gpus.log().count("upload GPU:1"), 1 + 1 + 2 + 1);

  // What a replica returns may refer to what it got.
  const auto same = strategy.run([](const Tensor& x) -> const Tensor& { return x; }, parts);
  EXPECT_EQ(to_vector<float>(same[1]), (std::vector<float>{2, 2}));
  const data::Element element = {mine, data::Element(std::string("text"))};
  const auto text = strategy.run(
      [](const Tensor& x, const std::string& t) { return t + std::to_string(x.numel()); }, element);
  EXPECT_EQ(text[0], "text2");
}

TEST(StrategyDevices, GetTheirPartsOfDistributedDatasets) {
  TestBackend gpus;
  const MirroredStrategy strategy({"GPU:0", "CPU:0"});
  const auto batches = data::Dataset::from_tensor_slices({arange(12), arange(12)}).batch(4);
  std::vector<int64_t> seen;
  for (const auto& [x, y] : strategy.distribute_dataset(batches)) {
    const auto sum =
        strategy.run([](const Tensor& a, const Tensor& b) { return (a + b).sum(); }, x, y);
    seen.push_back(strategy.reduce(ReduceOp::kSum, sum).item<int64_t>());
  }
  EXPECT_EQ(seen, (std::vector<int64_t>{12, 44, 76}));
  // Two tensors for each of three steps; and once more for run, which takes them for the host's.
  EXPECT_EQ(gpus.log().count("upload GPU:0"), 6 + 6);
  gpus.log().take();
  for (const auto& step : strategy.distribute_dataset(batches, {.fetch_to_device = false})) {
    EXPECT_EQ(step.size(), 2U);
  }
  EXPECT_EQ(gpus.log().count("upload"), 0);
  std::size_t rows = 0;
  for (const auto& [x, y] : batches.prefetch_to_device("GPU:1", 2)) rows += x.size(0);
  EXPECT_EQ(rows, 12U);
  EXPECT_EQ(gpus.log().count("upload GPU:1"), 6);
}

// Also where each has its memory: by copies to the first device.
TEST(StrategyDevices, MayBeCpusAndGpusTogether) {
  TestBackend gpus;
  const MirroredStrategy strategy({"CPU:0", "GPU:0"});
  const auto scope = strategy.scope();
  const Variable v(zeros({2}), {.aggregation = Aggregation::kMean});
  const auto sum = strategy.run([&] {
    const double id = get_replica_context().replica_id_in_sync_group();
    v.assign_add(full({2}, id + 1));
    return get_replica_context().all_reduce(ReduceOp::kSum, full({2}, id + 1));
  });
  EXPECT_EQ(to_vector<float>(sum[0]), (std::vector<float>{3, 3}));
  EXPECT_EQ(to_vector<float>(sum[1]), (std::vector<float>{3, 3}));
  EXPECT_EQ(to_vector<float>(v.components()[1].value()), (std::vector<float>{1.5, 1.5}));
}

TEST(StrategyDevices, OfTheDefaultStrategyAreTheHost) {
  get_strategy().run([] {
    EXPECT_EQ(get_replica_context().devices(), std::vector<Device>{"CPU:0"});
    return 0;
  });
}

}  // namespace
}  // namespace cohort
