// SPDX-License-Identifier: Apache-2.0
//
// What reductions and joins give, and what they refuse instead of cutting it.
#include <gtest/gtest.h>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"
#include "cohort/update_rules/rules.h"
#include "cohort/variables/fused_update.h"

namespace cohort {
namespace {

using testing::expect_error;

const MirroredStrategy& two() {
  static const MirroredStrategy strategy(std::vector<Device>{"CPU:0", "CPU:1"});
  return strategy;
}

template <class N>
N reduced(ReduceOp op, N a, N b) {
  return two().reduce(op, PerReplica<N>(std::vector<N>{a, b}));
}

TEST(ReducedNumbers, AreNotCut) {
  EXPECT_THROW(reduced(ReduceOp::kMean, 1, 2), InvalidArgument);
  EXPECT_THROW(reduced(ReduceOp::kMean, true, false), InvalidArgument);
  EXPECT_THROW(reduced(ReduceOp::kSum, true, true), InvalidArgument);
  EXPECT_THROW(reduced<uint8_t>(ReduceOp::kSum, 200, 100), InvalidArgument);
  EXPECT_THROW(reduced<uint8_t>(ReduceOp::kProduct, 20, 100), InvalidArgument);
  EXPECT_THROW(reduced(ReduceOp::kSum, 2000000000, 2000000000), InvalidArgument);
  EXPECT_EQ(reduced<uint8_t>(ReduceOp::kSum, 200, 55), 255);
  EXPECT_EQ(reduced<int64_t>(ReduceOp::kSum, 2000000000, 2000000000), 4000000000);
  EXPECT_EQ(reduced(ReduceOp::kMean, 1.0, 2.0), 1.5);
  EXPECT_EQ(reduced(ReduceOp::kMax, true, false), true);
  EXPECT_EQ(reduced(ReduceOp::kMin, 3, 2), 2);
}

TEST(ReducedNumbers, SoInReplicas) {
  EXPECT_THROW(two().run([] { return get_replica_context().all_reduce(ReduceOp::kMean, 1); }),
               InvalidArgument);
  EXPECT_THROW(two().run([] { return get_replica_context().all_reduce(ReduceOp::kSum, true); }),
               InvalidArgument);
  const auto sums = two().run([] { return get_replica_context().all_reduce(ReduceOp::kSum, 3); });
  EXPECT_EQ(sums[1], 6);
}

TEST(Gather, JoinsTheComponentsOfAVariable) {
  const auto scope = two().scope();
  const Variable same(tensor({1, 2}));
  const Variable own(
      zeros({1}), {.synchronization = Synchronization::kOnRead, .aggregation = Aggregation::kSum});
  two().run([&] { own.assign(get_replica_context().replica_id_in_sync_group() + 1); });
  EXPECT_EQ(to_vector<float>(two().gather(same, 0)), (std::vector<float>{1, 2, 1, 2}));
  EXPECT_EQ(to_vector<float>(two().gather(own, 0)), (std::vector<float>{1, 2}));
}

TEST(Results, AreNotTheInputItself) {
  for (const std::size_t replicas : {1, 2}) {
    const std::vector<Device> devices(two().extended().worker_devices());
    const MirroredStrategy strategy(
        std::vector<Device>(devices.begin(), devices.begin() + replicas));
    const PerReplica<Tensor> x(std::vector<Tensor>(replicas, ones({2})));
    const Tensor plain = ones({2});
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax}) {
      EXPECT_FALSE(strategy.reduce(op, x).is_alias_of(x[0]));
      EXPECT_FALSE(strategy.extended().reduce_to(op, x, Device("CPU:0"))[0].is_alias_of(x[0]));
    }
    EXPECT_FALSE(strategy.gather(x, 0).is_alias_of(x[0]));
    const IndexedSlices row{ones({1}), zeros({1}, kInt64), {4}};
    const PerReplica<IndexedSlices> rows(std::vector<IndexedSlices>(replicas, row));
    const IndexedSlices joined = strategy.reduce(ReduceOp::kSum, rows);
    EXPECT_FALSE(joined.values.is_alias_of(row.values));
    EXPECT_FALSE(joined.indices.is_alias_of(row.indices));
    const std::vector<ReduceItem> items = {
        {PerReplica<Gradient>(std::vector<Gradient>(replicas, plain)), Device("CPU:0")},
        {PerReplica<Gradient>(std::vector<Gradient>(replicas, row)), Device("CPU:0")}};
    const auto batch = strategy.extended().batch_reduce_to(ReduceOp::kSum, items);
    EXPECT_FALSE(batch[0][0].dense().is_alias_of(plain));
    EXPECT_FALSE(batch[1][0].slices().values.is_alias_of(row.values));
    EXPECT_EQ(batch[0][0].dense()[0].item<float>(), static_cast<float>(replicas));
    for (const Tensor& copy : strategy.extended().broadcast_to(plain)) {
      EXPECT_FALSE(copy.is_alias_of(plain));
    }
    const auto scope = strategy.scope();
    const Variable v(ones({2}));
    const Tensor before = strategy.reduce(ReduceOp::kMean, v);
    v.assign(5);
    EXPECT_EQ(before[0].item<float>(), 1);
  }
  const StrategyExtended& none = get_strategy().extended();
  const Tensor plain = ones({2});
  EXPECT_FALSE(const_cast<StrategyExtended&>(none).broadcast_to(plain)[0].is_alias_of(plain));
  const std::vector<ReduceItem> items = {{PerReplica<Gradient>({Gradient(plain)}), "CPU:0"}};
  EXPECT_FALSE(const_cast<StrategyExtended&>(none)
                   .batch_reduce_to(ReduceOp::kSum, items)[0][0]
                   .dense()
                   .is_alias_of(plain));
}

// Each replica owns what it gets: one that changes its rows changes no other's.
TEST(Results, OfRowsAreEachReplicasOwn) {
  for (const bool own_ops : {false, true}) {
    const MirroredStrategy strategy(
        {.devices = {"CPU:0", "CPU:1"},
         .cross_device_ops = own_ops ? std::make_shared<ReductionToOneDevice>()
                                     : std::shared_ptr<CrossDeviceOps>()});
    const auto rows = strategy.run([] {
      const IndexedSlices row{ones({1}), zeros({1}, kInt64), {4}};
      return get_replica_context().all_reduce(ReduceOp::kSum, row);
    });
    EXPECT_FALSE(rows[0].values.is_alias_of(rows[1].values)) << own_ops;
  }
}

/// Returns what a test wants in place of the sum.
struct WrongOps : CrossDeviceOps {
  Mirrored<Gradient> do_reduce(ReduceOp, const PerReplica<Gradient>&, const Destinations&,
                               const CommunicationOptions&) override {
    return Mirrored<Gradient>(result);
  }
  std::vector<Gradient> result;
};

TEST(OwnCrossDeviceOps, MustReturnWhatCanBeApplied) {
  const auto ops = std::make_shared<WrongOps>();
  const MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}, .cross_device_ops = ops});
  const auto scope = strategy.scope();
  const Variable w(ones({3}), {.name = "kernel"});
  internal::variables::FusedUpdate update({w});
  const auto step = [&] {
    strategy.run([&] {
      GradientTape tape;
      const Tensor loss = (w * 2).sum();
      update.apply(tape.gradient(loss, std::span(&w, 1)),
                   update_rules::SgdStep{.learning_rate = 1});
    });
  };
  const auto expect = [&](std::vector<Gradient> result, const char* got) {
    ops->result = std::move(result);
    expect_error<InvalidArgument>({"WrongOps", "\"kernel\"", got}, step);
    EXPECT_EQ(to_vector<float>(w.value()), (std::vector<float>{1, 1, 1}));
  };
  expect({}, "got 0");
  expect({Gradient()}, "got none");
  expect({Gradient(ones({2}))}, "got float32 [2]");
  expect({Gradient(ones({3})), Gradient(ones({1, 3}))}, "got float32 [1, 3]");
  expect({Gradient(ones({3}, kFloat64))}, "got float64 [3]");
  expect({Gradient(ones({3})), Gradient(ones({3})), Gradient(ones({3}))}, "got 3");
  ops->result = {Gradient(ones({3}))};
  step();
  EXPECT_EQ(to_vector<float>(w.value()), (std::vector<float>{0, 0, 0}));
}

// LibTorch adds none of them, and finds no extremes along their axes.
TEST(UnsignedNumbers, AreReduced) {
  const auto numbers = [](const Tensor& t) { return to_vector<int64_t>(t.to(kInt64)); };
  for (const DType dtype : {DType::UInt16, DType::UInt32, DType::UInt64}) {
    const PerReplica<Tensor> x({full({2}, 3, dtype), full({2}, 4, dtype)});
    EXPECT_EQ(numbers(two().reduce("sum", x)), (std::vector<int64_t>{7, 7}));
    EXPECT_EQ(two().reduce("sum", x).scalar_type(), dtype);
    EXPECT_EQ(numbers(two().reduce("max", x)), (std::vector<int64_t>{4, 4}));
    if (dtype == DType::UInt64) {
      expect_error<InvalidArgument>({"[strategy.reduce] ", "got uint64; convert them first"},
                                    [&] { two().reduce("max", x, 0); });
    } else {
      EXPECT_EQ(numbers(two().reduce("max", x, 0)), (std::vector<int64_t>{4}));
    }
  }
}

// As tensors of integers do in TensorFlow; plain numbers are refused.
TEST(UnsignedNumbers, WrapAroundInTensorsOnly) {
  for (const auto& [dtype, sum] : {std::pair{kUint8, 44}, std::pair{DType::UInt16, 300}}) {
    const PerReplica<Tensor> x({full({2}, 200, dtype), full({2}, 100, dtype)});
    EXPECT_EQ(to_vector<int64_t>(two().reduce("sum", x).to(kInt64)),
              (std::vector<int64_t>{sum, sum}));
  }
  expect_error<InvalidArgument>(
      {"[reduce] expected a sum that fits into integers of 8 bits", "int64_t"}, [&] {
        two().reduce("sum", PerReplica<uint8_t>({200, 100}));
      });
}

TEST(UnsignedNumbers, AreSummedByVariables) {
  const MirroredStrategy strategy = two();
  const auto scope = strategy.scope();
  for (const DType dtype : {DType::UInt16, DType::UInt32, DType::UInt64}) {
    const auto numbers = [](const Variable& v) { return to_vector<int64_t>(v.value().to(kInt64)); };
    const Variable own(zeros({2}, dtype), {.synchronization = Synchronization::kOnRead,
                                           .aggregation = Aggregation::kSum});
    strategy.run([&] { own.assign_add(full({2}, 3, dtype)); });
    EXPECT_EQ(numbers(own), (std::vector<int64_t>{6, 6})) << dtype;
    own.assign(full({2}, 9, dtype));  // a share to each replica
    EXPECT_EQ(numbers(own), (std::vector<int64_t>{9, 9})) << dtype;
    const Variable same(zeros({2}, dtype), {.aggregation = Aggregation::kSum});
    strategy.run([&] { same.assign_add(full({2}, 3, dtype)); });
    EXPECT_EQ(numbers(same), (std::vector<int64_t>{6, 6})) << dtype;
  }
}

// LibTorch has no maximum of them, and says so in words of its own.
TEST(Extremes, NeedNumbersThatHaveOne) {
  const Tensor complex = ones({2, 3}).to(at::kComplexFloat);
  const std::vector<Strategy> all = {get_strategy(), OneDeviceStrategy("CPU:0"), two()};
  for (const Strategy& strategy : all) {
    const auto replicas = static_cast<std::size_t>(strategy.num_replicas_in_sync());
    const PerReplica<Tensor> x(std::vector<Tensor>(replicas, complex));
    for (const Axes& axes : {Axes(), Axes({0}), Axes({0, 1})}) {
      expect_error<InvalidArgument>({"expected ordered numbers for max, got ComplexFloat",
                                     "reduce their abs(), or their real and imaginary parts"},
                                    [&] { strategy.reduce("max", x, axes); });
    }
    const PerReplica<Tensor> none(std::vector<Tensor>(replicas, zeros({0, 3})));
    for (const char* op : {"min", "max"}) {
      expect_error<InvalidArgument>(
          {"[strategy.reduce] expected at least 1 row for a ", op, ", got none on any replica"},
          [&] { strategy.reduce(op, none, 0); });
      EXPECT_EQ(shape_of(strategy.reduce(op, none, 1)), (Shape{0}));  // of no rows no extremes
    }
  }
  const PerReplica<Tensor> some({zeros({0, 2}), tensor({3, 1, 2, 5}).reshape({2, 2})});
  EXPECT_EQ(to_vector<float>(two().reduce("max", some, 0)), (std::vector<float>{3, 5}));
}

}  // namespace
}  // namespace cohort
