// SPDX-License-Identifier: Apache-2.0
//
// Strategies over devices that are no CPUs ask those devices' backends.
#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/runtime/internal/test_backend.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/variables/variable.h"

namespace cohort {
namespace {

using internal::runtime::TestBackend;

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
  EXPECT_THROW(MirroredStrategy({"GPU:0"}), Unimplemented);
  EXPECT_THROW(OneDeviceStrategy("TPU:0"), Unimplemented);
}

TEST(StrategyDevices, OfTheDefaultStrategyAreTheHost) {
  get_strategy().run([] {
    EXPECT_EQ(get_replica_context().devices(), std::vector<Device>{"CPU:0"});
    return 0;
  });
}

}  // namespace
}  // namespace cohort
