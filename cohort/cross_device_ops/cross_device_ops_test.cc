// SPDX-License-Identifier: Apache-2.0
#include "cohort/cross_device_ops/cross_device_ops.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"

namespace cohort {
namespace {

const std::vector<Device> kTwo = {"CPU:0", "CPU:1"};

PerReplica<Gradient> values(std::vector<Gradient> of) {
  return PerReplica<Gradient>(std::move(of));
}

TEST(ReductionToOneDevice, ReducesToEveryDestination) {
  ReductionToOneDevice ops;
  const auto sum = ops.reduce(ReduceOp::kSum, values({tensor({1, 2}), tensor({3, 4})}), kTwo);
  ASSERT_EQ(sum.size(), 2U);
  EXPECT_EQ(to_vector<float>(sum[0].dense()), (std::vector<float>{4, 6}));
  EXPECT_EQ(to_vector<float>(sum[1].dense()), (std::vector<float>{4, 6}));
  EXPECT_NE(sum[0].dense().data_ptr(), sum[1].dense().data_ptr());
}

TEST(ReductionToOneDevice, UsesTheUsersAccumulation) {
  int calls = 0;
  ReductionToOneDevice ops({}, [&](std::span<const Tensor> all) {
    ++calls;
    return all[0].add(all[1]);
  });
  const auto mean =
      ops.reduce(ReduceOp::kMean, values({tensor({1}), tensor({3})}), Device("CPU:0"));
  EXPECT_EQ(to_vector<float>(mean[0].dense()), (std::vector<float>{2}));
  EXPECT_EQ(calls, 1);
}

TEST(CrossDeviceOps, JoinsSparseRows) {
  ReductionToOneDevice ops;
  const IndexedSlices a{tensor({1, 2}), tensor({0, 2}, kInt64), {4}};
  const IndexedSlices b{tensor({5}), tensor({2}, kInt64), {4}};
  const auto sum = ops.reduce(ReduceOp::kSum, values({a, b}), Device("CPU:0"));
  EXPECT_EQ(to_vector<float>(sum[0].as_tensor()), (std::vector<float>{1, 0, 7, 0}));
  const auto mean = ops.reduce(ReduceOp::kMean, values({a, b}), Device("CPU:0"));
  EXPECT_EQ(to_vector<float>(mean[0].as_tensor()), (std::vector<float>{0.5, 0, 3.5, 0}));
  EXPECT_THROW(ops.reduce(ReduceOp::kMax, values({a, b}), Device("CPU:0")), Unimplemented);
}

TEST(CrossDeviceOps, BatchReducesInOrder) {
  ReductionToOneDevice ops;
  const std::vector<ReduceItem> items = {{values({tensor({1}), tensor({2})}), kTwo},
                                         {values({tensor({5}), tensor({7})}), Device("CPU:0")}};
  const auto results = ops.batch_reduce(ReduceOp::kSum, items);
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(to_vector<float>(results[0][1].dense()), (std::vector<float>{3}));
  EXPECT_EQ(to_vector<float>(results[1][0].dense()), (std::vector<float>{12}));
}

TEST(CrossDeviceOps, GathersUnevenRows) {
  ReductionToOneDevice ops;
  const PerReplica<Tensor> rows({zeros({1, 1}), ones({2, 1})});
  EXPECT_EQ(to_vector<float>(ops.gather(rows, Device("CPU:0"), 0)[0]),
            (std::vector<float>{0, 1, 1}));
  EXPECT_THROW(ops.gather(rows, Device("CPU:0"), 1), InvalidArgument);
  EXPECT_THROW(ops.gather(PerReplica<Tensor>({scalar(1), scalar(2)}), kTwo, 0), InvalidArgument);
}

TEST(CrossDeviceOps, RefusesBadInput) {
  ReductionToOneDevice ops;
  const auto two = values({tensor({1}), tensor({2})});
  EXPECT_THROW(ops.reduce(ReduceOp::kSum, two, std::vector<Device>{}), InvalidArgument);
  EXPECT_THROW(ops.reduce(ReduceOp::kSum, values({tensor({1}), Gradient()}), kTwo),
               InvalidArgument);
  EXPECT_THROW(ops.reduce(ReduceOp::kSum, two, kTwo, {.bytes_per_pack = -1}), InvalidArgument);
  EXPECT_THROW(ReductionToOneDevice(Device("GPU:0")), Unimplemented);
}

}  // namespace
}  // namespace cohort
