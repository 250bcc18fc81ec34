// SPDX-License-Identifier: Apache-2.0
#include "cohort/cross_device_ops/cross_device_ops.h"

#include <gtest/gtest.h>

#include <string_view>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"
#include "cohort/runtime/internal/test_backend.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::error_text;
using testing::expect_error;
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
  EXPECT_THROW(ops.reduce(ReduceOp::kSum, two, kTwo, {.bfloat16_gradients = true}),
               InvalidArgument);
  EXPECT_THROW(ReductionToOneDevice(Device("TPU:0")), Unimplemented);
}

std::vector<Device> cpus(std::size_t count) {
  std::vector<Device> devices;
  for (std::size_t i = 0; i < count; ++i) devices.push_back(Device(str_cat("CPU:", i)));
  return devices;
}

// Numbers whose sum depends on the order of additions.
Tensor numbers(int64_t count, std::size_t replica, DType dtype = kFloat32) {
  return arange(count).add(static_cast<double>(replica) * 1.7 + 0.1).sin().mul(1e3).to(dtype);
}

Tensor sum_of(const std::vector<Tensor>& all, std::size_t begin, std::size_t end) {
  Tensor sum = all[begin];
  for (std::size_t i = begin + 1; i < end; ++i) sum = sum.add(all[i]);
  return sum;
}

TEST(CrossDeviceOps, OneValueForOneDestinationComesBackAsItIs) {
  struct Never : CrossDeviceOps {
    Mirrored<Gradient> do_reduce(ReduceOp, const PerReplica<Gradient>&, const Destinations&,
                                 const CommunicationOptions&) override {
      throw Internal("not needed");
    }
  } ops;
  const Tensor value = tensor({1, 2});
  const auto same = ops.reduce(ReduceOp::kMean, values({value}), Device("CPU:0"));
  EXPECT_TRUE(same[0].dense().is_same(value));
  const std::vector<ReduceItem> items = {{values({value}), Device("CPU:0")}};
  EXPECT_TRUE(ops.batch_reduce(ReduceOp::kSum, items)[0][0].dense().is_same(value));
  EXPECT_THROW(ops.reduce(ReduceOp::kSum, values({value}), kTwo), Internal);
  ReductionToOneDevice copies;
  const auto two = copies.reduce(ReduceOp::kSum, values({value}), kTwo);
  EXPECT_NE(two[0].dense().data_ptr(), value.data_ptr());
  EXPECT_NE(two[1].dense().data_ptr(), value.data_ptr());
}

TEST(CrossDeviceOps, RefusesValuesThatDiffer) {
  ReductionToOneDevice ops;
  const auto text = [&](ReduceOp op, std::vector<Gradient> of) {
    return error_text<InvalidArgument>([&] { ops.reduce(op, values(std::move(of)), kTwo); });
  };
  EXPECT_EQ(text(ReduceOp::kSum, {tensor({1, 2}), tensor({1})}),
            "[cross_device_ops.reduce] expected shape [2] on every replica, got [1] on replica 1");
  EXPECT_EQ(text(ReduceOp::kSum, {tensor({1}), tensor({1}, kFloat64)}),
            "[cross_device_ops.reduce] expected dtype float32 on every replica, got float64 on "
            "replica 1");
  const IndexedSlices rows{tensor({1}), tensor({0}, kInt64), {4}};
  const auto expect_refused = [&](std::string_view words, ReduceOp op, std::vector<Gradient> of) {
    expect_error<InvalidArgument>({words}, [&] { ops.reduce(op, values(std::move(of)), kTwo); });
  };
  expect_refused("dense on replica 0, sparse on replica 1", ReduceOp::kSum, {tensor({1}), rows});
  expect_refused("for mean", ReduceOp::kMean, {tensor({1}, kInt32), tensor({1}, kInt32)});
  expect_refused("got bool", ReduceOp::kSum, {ones({1}, kBool), ones({1}, kBool)});
  const IndexedSlices other{tensor({1}), tensor({0}, kInt64), {5}};
  expect_refused("table of shape [4]", ReduceOp::kSum, {rows, other});
  EXPECT_THROW(ops.reduce(ReduceOp::kSum, values({tensor({1})}), Device("TPU:0")), Unimplemented);
  const internal::runtime::TestBackend gpus;  // with which there are some
  EXPECT_EQ(ops.reduce(ReduceOp::kSum, values({tensor({1})}), Device("GPU:0")).size(), 1U);
  EXPECT_THROW(ops.broadcast(Tensor(), kTwo), InvalidArgument);
  EXPECT_EQ(ops.broadcast(tensor({3}), Device("CPU:0")).size(), 1U);
}

/// Does with the values what a test wants.
struct OwnReduce : CrossDeviceOps {
  using Reduce = std::function<Gradient(const PerReplica<Gradient>&)>;
  explicit OwnReduce(Reduce f) : reduce_values(std::move(f)) {}
  Mirrored<Gradient> do_reduce(ReduceOp, const PerReplica<Gradient>& value, const Destinations&,
                               const CommunicationOptions&) override {
    return Mirrored<Gradient>({reduce_values(value)});
  }
  Mirrored<Tensor> do_gather(const PerReplica<Tensor>& value, const Destinations&, int64_t,
                             const CommunicationOptions&) override {
    return Mirrored<Tensor>({value[0]});
  }
  Reduce reduce_values;
};

TEST(CrossDeviceOps, HandsOutNoValueThatAHookReturns) {
  OwnReduce first([](const PerReplica<Gradient>& value) { return value[0]; });
  const Tensor a = tensor({1, 2});
  const auto one = first.reduce(ReduceOp::kSum, values({a, tensor({3, 4})}), Device("CPU:0"));
  EXPECT_EQ(to_vector<float>(one[0].dense()), (std::vector<float>{1, 2}));
  EXPECT_FALSE(one[0].dense().is_alias_of(a));
  const std::vector<ReduceItem> items = {{values({a, tensor({3, 4})}), kTwo}};
  EXPECT_FALSE(first.batch_reduce(ReduceOp::kSum, items)[0][0].dense().is_alias_of(a));
  EXPECT_FALSE(first.gather(PerReplica<Tensor>({a}), Device("CPU:0"), 0)[0].is_alias_of(a));
  const IndexedSlices rows{tensor({1}), tensor({0}, kInt64), {4}};
  const auto sparse = first.reduce(ReduceOp::kSum, values({rows, rows}), kTwo);
  EXPECT_FALSE(sparse[0].slices().values.is_alias_of(rows.values));
  EXPECT_FALSE(sparse[0].slices().indices.is_alias_of(rows.indices));
}

// Who has kept a gradient would see another number.
TEST(CrossDeviceOps, SaysThatAHookWritesTheValues) {
  OwnReduce in_place([](const PerReplica<Gradient>& value) -> Gradient {
    return value[0].as_tensor().detach().view({-1}).add_(value[1].as_tensor());
  });
  const std::vector<ReduceItem> items = {{values({tensor({5}), tensor({6})}), Device("CPU:0")}};
  for (const std::string& text :
       {error_text<InvalidArgument>([&] {
          in_place.reduce(ReduceOp::kSum, values({tensor({1}), tensor({3})}), Device("CPU:0"));
        }),
        error_text<InvalidArgument>([&] { in_place.batch_reduce(ReduceOp::kSum, items); })}) {
    testing::expect_words(text, {"OwnReduce to leave the values as they are",
                                 "that of replica 0 written", "clone()"});
  }
  OwnReduce cloned([](const PerReplica<Gradient>& value) -> Gradient {
    return value[0].dense().clone().add_(value[1].dense());
  });
  EXPECT_EQ(cloned.batch_reduce(ReduceOp::kSum, items)[0][0].dense().item<float>(), 17);
}

TEST(ReductionToOneDevice, NeverHandsOutWhatTheAccumulationShares) {
  ReductionToOneDevice ops("CPU:1", [](std::span<const Tensor> all) { return all[1]; });
  const Tensor b = tensor({3});
  const auto sum = ops.reduce(ReduceOp::kSum, values({tensor({1}), b}), kTwo);
  EXPECT_NE(sum[0].dense().data_ptr(), b.data_ptr());
  EXPECT_EQ(sum[1].dense().item<float>(), 3);
  ReductionToOneDevice wrong({}, [](std::span<const Tensor>) { return tensor({1, 2, 3}); });
  EXPECT_THROW(wrong.reduce(ReduceOp::kSum, values({tensor({1}), b}), kTwo), InvalidArgument);
}

TEST(HierarchicalCopyAllReduce, AddsHalvesForAnyNumbersOfReplicasAndPacks) {
  for (const int num_packs : {0, 1, 2, 3, 7}) {
    HierarchicalCopyAllReduce ops(num_packs);
    for (std::size_t replicas = 1; replicas <= 5; ++replicas) {
      std::vector<Tensor> small, large;
      std::vector<Gradient> a, b;
      for (std::size_t r = 0; r < replicas; ++r) {
        a.push_back(small.emplace_back(numbers(5, r)));
        b.push_back(large.emplace_back(numbers(1003, r)));
      }
      const std::vector<ReduceItem> items = {{values(a), cpus(replicas)},
                                             {values(b), cpus(replicas)}};
      const auto sums = ops.batch_reduce(ReduceOp::kSum, items);
      const auto means = ops.batch_reduce(ReduceOp::kMean, items);
      const std::size_t half = replicas / 2;
      for (std::size_t r = 0; r < replicas; ++r) {
        for (std::size_t i = 0; i < 2; ++i) {
          const auto& all = i == 0 ? small : large;
          Tensor expected = sum_of(all, half, replicas);
          if (half > 0) expected = sum_of(all, 0, half).add(expected);
          EXPECT_TRUE(sums[i][r].dense().equal(expected)) << replicas << " " << num_packs;
          EXPECT_TRUE(means[i][r].dense().equal(expected.div(static_cast<double>(replicas))));
        }
      }
    }
  }
}

TEST(HierarchicalCopyAllReduce, TakesEveryKindOfValue) {
  HierarchicalCopyAllReduce ops(2);
  const IndexedSlices rows{tensor({1, 2}), tensor({0, 2}, kInt64), {4}};
  const std::vector<ReduceItem> items = {
      {values({tensor({1, 2}), tensor({3, 4})}), kTwo},
      {values({rows, rows}), kTwo},
      {values({arange(3), arange(3)}), kTwo},
      {values({tensor({1, 2}), tensor({3, 4})}), Device("CPU:0")},  // not a destination for each
      {values({numbers(6, 0, kFloat64).view({2, 3}).t(), numbers(6, 1, kFloat64).view({3, 2})}),
       kTwo}};
  const auto sums = ops.batch_reduce(ReduceOp::kSum, items);
  EXPECT_EQ(to_vector<float>(sums[0][1].dense()), (std::vector<float>{4, 6}));
  EXPECT_EQ(to_vector<float>(sums[1][1].as_tensor()), (std::vector<float>{2, 0, 4, 0}));
  EXPECT_EQ(to_vector<int64_t>(sums[2][0].dense()), (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(sums[3].size(), 1U);
  EXPECT_TRUE(sums[4][1].dense().equal(items[4].value[0].dense().add(items[4].value[1].dense())));
  const auto largest = ops.reduce(ReduceOp::kMax, items[0].value, kTwo);
  EXPECT_EQ(to_vector<float>(largest[0].dense()), (std::vector<float>{3, 4}));
  const PerReplica<Tensor> parts({ones({1}), zeros({2})});
  EXPECT_EQ(to_vector<float>(ops.gather(parts, kTwo, 0)[1]), (std::vector<float>{1, 0, 0}));
}

TEST(CrossDeviceOps, D29_NegativePacksAreRefused) {
  EXPECT_THROW(NcclAllReduce(-1), InvalidArgument);
  EXPECT_THROW(HierarchicalCopyAllReduce(-1), InvalidArgument);
  ReductionToOneDevice ops;
  EXPECT_THROW(
      ops.reduce(ReduceOp::kSum, values({tensor({1}), tensor({2})}), kTwo, {.bytes_per_pack = -1}),
      InvalidArgument);
}

TEST(NcclAllReduce, SaysWhatItNeeds) {
  NcclAllReduce ops(2);
  expect_error<Unimplemented>(
      {"CUDA devices and a build with NCCL",
       "use ReductionToOneDevice or HierarchicalCopyAllReduce"},
      [&] {
        ops.reduce(ReduceOp::kSum, values({tensor({1}), tensor({2})}), kTwo);
      });
  const IndexedSlices rows{tensor({1}), tensor({1}, kInt64), {2}};
  const auto sum = ops.reduce(ReduceOp::kSum, values({rows, rows}), kTwo);
  EXPECT_EQ(to_vector<float>(sum[1].as_tensor()), (std::vector<float>{0, 2}));
}

}  // namespace
}  // namespace cohort
