// SPDX-License-Identifier: Apache-2.0
//
// Collectives of replica contexts: nests at one meeting, gradients, a user's own cross-device ops.
#include <gtest/gtest.h>

#include <map>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/deadline.h"

namespace cohort {
namespace {

MirroredStrategy two() { return MirroredStrategy({"CPU:0", "CPU:1"}); }
int id() { return get_replica_context().replica_id_in_sync_group(); }

struct Nest {
  Tensor loss;
  std::map<std::string, Tensor> parts;
  int count = 0;
  std::vector<Gradient> gradients;
};

Nest nest_of(int replica) {
  const IndexedSlices rows{tensor({1.0}), tensor({double(replica)}, kInt64), {2}};
  return {.loss = scalar(replica),
          .parts = {{"large", full({3000}, replica + 1)}, {"small", tensor({1, 2})}},
          .count = replica + 1,
          .gradients = {tensor({5}), rows, Gradient()}};
}

TEST(AllReduceNest, IsOneMeetingOfAllLeaves) {
  const auto strategy = two();
  strategy.run([] {
    internal::runtime::ReplicaGroup* group = internal::runtime::current_replica_group();
    const uint64_t before = group->epoch(id());
    const Nest sum = get_replica_context().all_reduce(ReduceOp::kSum, nest_of(id()));
    EXPECT_EQ(group->epoch(id()), before + 2);
    EXPECT_EQ(sum.loss.item<float>(), 1);
    EXPECT_EQ(sum.parts.at("large").sum().item<float>(), 9000);
    EXPECT_EQ(to_vector<float>(sum.parts.at("small")), (std::vector<float>{2, 4}));
    EXPECT_EQ(sum.count, 3);
    EXPECT_EQ(sum.gradients[0].dense().item<float>(), 10);
    EXPECT_EQ(to_vector<float>(sum.gradients[1].as_tensor()), (std::vector<float>{1, 1}));
    EXPECT_TRUE(sum.gradients[1].is_sparse());
    EXPECT_FALSE(sum.gradients[2].has_value());
  });
}

TEST(AllReduceNest, WithoutAStrategyIsACopy) {
  const Nest nest = nest_of(1);
  const Nest sum = get_replica_context().all_reduce(ReduceOp::kSum, nest);
  EXPECT_EQ(sum.count, 2);
  EXPECT_EQ(sum.loss.item<float>(), 1);
  EXPECT_NE(sum.loss.data_ptr(), nest.loss.data_ptr());
}

TEST(AllReduceNest, OfOtherStructureIsAnError) {
  const auto strategy = two();
  testing::run_with_deadline(std::chrono::seconds(60), [&] {
    EXPECT_THROW(strategy.run([] {
      const std::vector<Tensor> some(static_cast<std::size_t>(id()) + 1, scalar(1));
      get_replica_context().all_reduce(ReduceOp::kSum, some);
    }),
                 InvalidArgument);
    EXPECT_THROW(strategy.run([] {
      const Gradient some = id() == 0 ? Gradient(scalar(1)) : Gradient();
      get_replica_context().all_reduce(ReduceOp::kSum, some);
    }),
                 InvalidArgument);
    EXPECT_THROW(strategy.run([] {
      const auto ctx = get_replica_context();
      if (id() == 0) {
        ctx.all_reduce(ReduceOp::kSum, scalar(1));
      } else {
        ctx.all_gather(tensor({1}), 0);
      }
    }),
                 FailedPrecondition);
    EXPECT_THROW(strategy.run([] {
      const auto ctx = get_replica_context();
      if (id() == 0) {
        ctx.all_reduce(ReduceOp::kSum, scalar(1));
      } else {
        ctx.merge_call([](Strategy&) {});
      }
    }),
                 FailedPrecondition);
  });
}

TEST(AllReduceGradient, IsTheAllReduceOfTheGradients) {
  const auto strategy = two();
  for (const auto& [op, expected] :
       {std::pair(ReduceOp::kSum, 4.F), std::pair(ReduceOp::kMean, 2.F)}) {
    const ReduceOp reduce = op;
    const auto gradients = strategy.run([reduce] {
      Tensor x = scalar(2);
      GradientTape tape;
      tape.watch(x);
      const double coefficient = id() == 0 ? 1 : 3;
      return tape.gradient(get_replica_context().all_reduce(reduce, x) * coefficient, x);
    });
    EXPECT_EQ(gradients[0].item<float>(), expected);
    EXPECT_EQ(gradients[1].item<float>(), expected);
  }
}

TEST(AllReduceGradient, OfANestMeetsOnceAndCountsWhatOthersUsed) {
  const auto strategy = two();
  strategy.run([] {
    internal::runtime::ReplicaGroup* group = internal::runtime::current_replica_group();
    Tensor x = scalar(2), y = tensor({1, 2});
    const Tensor integers = tensor({7}, kInt64);
    GradientTape tape({.persistent = true});
    tape.watch(x);
    tape.watch(y);
    const auto [a, b, c] =
        get_replica_context().all_reduce(ReduceOp::kSum, std::tuple(x, y, integers));
    EXPECT_EQ(c.item<int64_t>(), 14);
    // Replica 0 uses the first result, replica 1 the second one twice.
    const Tensor loss = id() == 0 ? a * 3 : b.sum() * 2;
    const uint64_t before = group->epoch(id());
    const std::vector<Tensor> sources = {x, y};
    const auto gradients = tape.gradient(loss, sources);
    EXPECT_EQ(group->epoch(id()), before + 2);
    EXPECT_EQ(Tensor(gradients[0]).item<float>(), 3);
    EXPECT_EQ(to_vector<float>(gradients[1]), (std::vector<float>{2, 2}));
  });
}

TEST(AllReduceGradient, OfTheGradient) {
  const auto strategy = two();
  strategy.run([] {
    Tensor x = scalar(3);
    GradientTape outer;
    outer.watch(x);
    Tensor first;
    {
      GradientTape inner;
      inner.watch(x);
      const Tensor y = get_replica_context().all_reduce(ReduceOp::kMean, x * x * x);
      first = inner.gradient(y * y, x);  // 2 y * 3 x^2, averaged
    }
    EXPECT_FLOAT_EQ(first.item<float>(), 6 * 243);
    EXPECT_FLOAT_EQ(outer.gradient(first, x).item<float>(), 30 * 81);  // of x^6
  });
}

TEST(AllReduceGradient, OnlyOfSumsAndMeans) {
  const auto strategy = two();
  const auto reduce_max = [&] {
    strategy.run([] {
      const Tensor x = scalar(1 + id()).requires_grad_();
      get_replica_context().all_reduce(ReduceOp::kMax, x);
    });
  };
  EXPECT_THROW(reduce_max(), InvalidArgument);
  const auto values = strategy.run([] {
    const auto ctx = get_replica_context();
    const Tensor x = scalar(2 + id());
    return std::tuple(ctx.all_reduce(ReduceOp::kMax, x), ctx.all_reduce(ReduceOp::kMin, x),
                      ctx.all_reduce(ReduceOp::kProduct, x));
  });
  for (const auto& [largest, smallest, product] : values) {
    EXPECT_EQ(largest.item<float>(), 3);
    EXPECT_EQ(smallest.item<float>(), 2);
    EXPECT_EQ(product.item<float>(), 6);
  }
}

TEST(AllGatherNest, IsOneMeetingAndDifferentiable) {
  const auto strategy = two();
  strategy.run([] {
    internal::runtime::ReplicaGroup* group = internal::runtime::current_replica_group();
    Tensor x = ones({id() + 1, 1});
    const Tensor ids = full({1, 2}, id(), kInt64);
    GradientTape tape;
    tape.watch(x);
    const uint64_t before = group->epoch(id());
    const auto [a, b] = get_replica_context().all_gather(std::tuple(x, ids), 0);
    EXPECT_EQ(group->epoch(id()), before + 2);
    EXPECT_EQ(to_vector<int64_t>(b), (std::vector<int64_t>{0, 0, 1, 1}));
    const Tensor weighted = a * from_vector<float>({1, 2, 3}, {3, 1});
    const auto g = to_vector<float>(tape.gradient(weighted.sum(), x));
    EXPECT_EQ(g, id() == 0 ? std::vector<float>{2} : (std::vector<float>{4, 6}));
  });
}

struct CountedReduce : CrossDeviceOps {
  ReductionToOneDevice inner;
  int calls = 0;
  Mirrored<Gradient> do_reduce(ReduceOp op, const PerReplica<Gradient>& value,
                               const Destinations& to,
                               const CommunicationOptions& options) override {
    ++calls;
    return inner.reduce(op, value, to, options);
  }
  int gathers = 0;
  Mirrored<Tensor> do_gather(const PerReplica<Tensor>& value, const Destinations& to, int64_t axis,
                             const CommunicationOptions& options) override {
    ++gathers;
    return inner.gather(value, to, axis, options);
  }
};

TEST(AllGather, GoesThroughTheUsersOwnOps) {
  const auto ops = std::make_shared<CountedReduce>();
  const MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}, .cross_device_ops = ops});
  strategy.run([] {
    Tensor x = ones({id() + 1, 1});
    GradientTape tape;
    tape.watch(x);
    const Tensor all = get_replica_context().all_gather(x, -2);
    EXPECT_EQ(shape_of(all), (Shape{3, 1}));
    const auto g =
        to_vector<float>(tape.gradient((all * from_vector<float>({1, 2, 3}, {3, 1})).sum(), x));
    EXPECT_EQ(g, id() == 0 ? std::vector<float>{2} : (std::vector<float>{4, 6}));
  });
  EXPECT_EQ(ops->gathers, 1);
  EXPECT_EQ(ops->calls, 1);  // of the gradients
  EXPECT_THROW(strategy.run([] { get_replica_context().all_gather(scalar(1), 0); }),
               InvalidArgument);
}

TEST(AllReduce, GoesThroughTheUsersOwnOps) {
  const auto ops = std::make_shared<CountedReduce>();
  const MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}, .cross_device_ops = ops});
  strategy.run([] {
    const Nest sum = get_replica_context().all_reduce(ReduceOp::kSum, nest_of(id()));
    EXPECT_EQ(sum.loss.item<float>(), 1);
    EXPECT_EQ(sum.count, 3);
    EXPECT_EQ(to_vector<float>(sum.gradients[1].as_tensor()), (std::vector<float>{1, 1}));
    EXPECT_FALSE(sum.gradients[2].has_value());
    Tensor x = scalar(2);
    GradientTape tape;
    tape.watch(x);
    const Tensor mean = get_replica_context().all_reduce(ReduceOp::kMean, x);
    EXPECT_EQ(tape.gradient(mean * (id() + 1.0), x).item<float>(), 1.5);
  });
  EXPECT_EQ(ops->calls, 5 + 2);  // five leaves that are no numbers; a mean and its gradient
}

TEST(AllReduce, ThroughOpsOfTheLibrary) {
  const MirroredStrategy halves(
      {.devices = {"CPU:0", "CPU:1", "CPU:2"},
       .cross_device_ops = std::make_shared<HierarchicalCopyAllReduce>(2)});
  const auto sums = halves.run([] {
    return get_replica_context().all_reduce(ReduceOp::kSum, arange(5).to(kFloat32) + id());
  });
  for (const Tensor& sum : sums) {
    EXPECT_EQ(to_vector<float>(sum), (std::vector<float>{3, 6, 9, 12, 15}));
  }
  const MirroredStrategy nccl(
      {.devices = {"CPU:0", "CPU:1"}, .cross_device_ops = std::make_shared<NcclAllReduce>()});
  EXPECT_THROW(nccl.run([] { get_replica_context().all_reduce(ReduceOp::kSum, scalar(1)); }),
               Unimplemented);
}

}  // namespace
}  // namespace cohort
