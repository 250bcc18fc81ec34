// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/strategy.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/strategy/loss_scaling.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::error_text;
using testing::run_with_deadline;

MirroredStrategy two() { return MirroredStrategy({"CPU:0", "CPU:1"}); }
PerReplica<Tensor> values(std::vector<Tensor> of) { return PerReplica<Tensor>(std::move(of)); }

TEST(Run, MayLetGoOfTheStrategy) {
  auto strategy = std::make_unique<MirroredStrategy>(two());
  const PerReplica<int> sizes = strategy->run([&] {
    const ReplicaContext replica = get_replica_context();
    replica.merge_call([&](Strategy&) { strategy.reset(); });
    return replica.num_replicas_in_sync();
  });
  EXPECT_EQ(sizes[0] + sizes[1], 4);
  strategy = std::make_unique<MirroredStrategy>(two());
  const PerReplica<int> ids = strategy->distribute_values_from_function([&](const ValueContext& c) {
    strategy.reset();
    return c.replica_id_in_sync_group;
  });
  EXPECT_EQ(ids[1], 1);
}

TEST(Context, DefaultOutsideEverything) {
  EXPECT_FALSE(has_strategy());
  EXPECT_FALSE(in_cross_replica_context());
  ASSERT_TRUE(get_replica_context());
  EXPECT_EQ(get_replica_context().replica_id_in_sync_group(), 0);
  EXPECT_EQ(get_replica_context().num_replicas_in_sync(), 1);
  EXPECT_EQ(get_strategy().num_replicas_in_sync(), 1);
  bool inside = false;
  get_replica_context().merge_call([&](Strategy& s) {
    inside = in_cross_replica_context() && !has_strategy() && s == get_strategy();
  });
  EXPECT_TRUE(inside);
}

TEST(Context, ScopeRunAndMerge) {
  const auto strategy = two();
  {
    const auto scope = strategy.scope();
    EXPECT_TRUE(has_strategy());
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_FALSE(get_replica_context());
    EXPECT_TRUE(get_strategy() == strategy);
    const auto again = strategy.scope();
    EXPECT_TRUE(in_cross_replica_context());
  }
  EXPECT_FALSE(has_strategy());
  const auto ids = strategy.run([&] {
    EXPECT_FALSE(in_cross_replica_context());
    EXPECT_TRUE(get_strategy() == strategy);
    get_replica_context().merge_call([&](Strategy& s) {
      EXPECT_TRUE(in_cross_replica_context());
      EXPECT_FALSE(get_replica_context());
      EXPECT_TRUE(s == strategy);
    });
    return get_replica_context().replica_id_in_sync_group();
  });
  EXPECT_EQ(strategy.local_results(ids), (std::vector<int>{0, 1}));
}

TEST(Context, MixingAndNestingAreErrors) {
  const auto a = two();
  const auto b = two();
  {
    const auto scope = a.scope();
    EXPECT_NE(error_text<FailedPrecondition>([&] { auto s = b.scope(); }).find("[strategy.scope]"),
              std::string::npos);
    EXPECT_THROW(b.run([] {}), FailedPrecondition);
    EXPECT_THROW(auto s = get_strategy().scope(); set_strategy(b), FailedPrecondition);
  }
  EXPECT_THROW(a.run([&] { auto s = a.scope(); }), FailedPrecondition);
  EXPECT_THROW(a.run([&] { a.run([] {}); }), FailedPrecondition);
  EXPECT_THROW(a.run([&] {
    a.reduce(ReduceOp::kSum, values({scalar(1), scalar(2)}));
  }),
               FailedPrecondition);
  EXPECT_THROW(ReplicaContext().replica_id_in_sync_group(), FailedPrecondition);
}

TEST(Context, SetStrategyHoldsForTheThread) {
  const auto strategy = two();
  set_strategy(strategy);
  EXPECT_TRUE(get_strategy() == strategy);
  std::thread([] { EXPECT_FALSE(has_strategy()); }).join();
  set_strategy(std::nullopt);
  EXPECT_FALSE(has_strategy());
}

TEST(Run, ReplicasMeetInsideTheFunction) {
  const auto strategy = two();
  run_with_deadline(std::chrono::seconds(60), [&] {
    std::latch both(2);
    strategy.run([&] { both.arrive_and_wait(); });
  });
}

TEST(Run, SpreadsArgumentsAndUnzipsResults) {
  const auto strategy = two();
  const auto x = values({tensor({1}), tensor({2})});
  auto [twice, square] =
      strategy.run([](const Tensor& v, double k) { return std::tuple(v * k, v * v); }, x, 2.0);
  EXPECT_EQ(twice[1].item<float>(), 4);
  EXPECT_EQ(square[1].item<float>(), 4);
  const PerReplica<std::tuple<Tensor, Tensor>> pairs(
      {{scalar(1), scalar(2)}, {scalar(3), scalar(4)}});
  const auto sums = strategy.run([](const Tensor& a, const Tensor& b) { return a + b; }, pairs);
  EXPECT_EQ(sums[1].item<float>(), 7);
  const int same = strategy.run([] { return 7; });
  EXPECT_EQ(same, 7);
  EXPECT_THROW(strategy.run([](const Tensor&) {}, values({scalar(1)})), InvalidArgument);
}

TEST(Run, CarriesGradModeAlong) {
  const auto strategy = two();
  const at::NoGradGuard off;
  const auto modes = strategy.run([] { return at::GradMode::is_enabled(); });
  EXPECT_FALSE(modes[0]);
  EXPECT_FALSE(modes[1]);
}

TEST(Run, LowestFailingReplicaIsReportedAndTheStrategySurvives) {
  const auto strategy = two();
  run_with_deadline(std::chrono::seconds(60), [&] {
    EXPECT_EQ(error_text<InvalidArgument>([&] {
                strategy.run([] {
                  const auto ctx = get_replica_context();
                  if (ctx.replica_id_in_sync_group() == 1)
                    throw InvalidArgument("replica 1 failed");
                  ctx.all_reduce(ReduceOp::kSum, scalar(1));
                });
              }),
              "replica 1 failed");
    EXPECT_EQ(error_text<InvalidArgument>([&] {
                strategy.run([] {
                  throw InvalidArgument(str_cat(get_replica_context().replica_id_in_sync_group()));
                });
              }),
              "0");
    const std::string diverged = error_text<FailedPrecondition>([&] {
      strategy.run([] {
        const auto ctx = get_replica_context();
        if (ctx.replica_id_in_sync_group() == 0) ctx.all_reduce(ReduceOp::kSum, scalar(1));
      });
    });
    EXPECT_NE(diverged.find("different numbers of merge calls"), std::string::npos) << diverged;
    EXPECT_THROW(strategy.run([] {
      get_replica_context().merge_call([](Strategy&) { throw DataLoss("in merge"); });
    }),
                 DataLoss);
    EXPECT_EQ(strategy.run([] { return 1; })[1], 1);
  });
}

TEST(MergeCall, RegroupsArgumentsAndSplitsResults) {
  const auto strategy = two();
  const auto out = strategy.run([] {
    const auto ctx = get_replica_context();
    const int mine = ctx.replica_id_in_sync_group() + 1;
    return ctx.merge_call(
        [](Strategy&, const PerReplica<int>& all) {
          return all.map([&](const int& x) { return x * 10 + all[1]; });
        },
        mine);
  });
  EXPECT_EQ(out[0], 12);
  EXPECT_EQ(out[1], 22);
}

TEST(ReplicaContext, AllReduceIsDifferentiable) {
  const auto strategy = two();
  const auto gradients = strategy.run([] {
    const auto ctx = get_replica_context();
    Tensor x = scalar(2);
    GradientTape tape;
    tape.watch(x);
    const double coefficient = ctx.replica_id_in_sync_group() == 0 ? 1 : 3;
    return tape.gradient(ctx.all_reduce(ReduceOp::kSum, x) * coefficient, x);
  });
  EXPECT_EQ(gradients[0].item<float>(), 4);
  EXPECT_EQ(gradients[1].item<float>(), 4);
}

TEST(ReplicaContext, GathersUnevenRowsAndNumbers) {
  const auto strategy = two();
  strategy.run([] {
    const auto ctx = get_replica_context();
    const int id = ctx.replica_id_in_sync_group();
    const Tensor all = ctx.all_gather(full({id + 1, 1}, id), 0);
    EXPECT_EQ(to_vector<float>(all), (std::vector<float>{0, 1, 1}));
    EXPECT_EQ(ctx.all_reduce(ReduceOp::kSum, 1), 2);
    const auto [a, b] = ctx.all_reduce(ReduceOp::kMean, std::tuple(scalar(id), 3.0 * id));
    EXPECT_EQ(a.item<float>(), 0.5);
    EXPECT_EQ(b, 1.5);
    Tensor x = ones({id + 1, 1});
    GradientTape tape;
    tape.watch(x);
    const Tensor weighted = ctx.all_gather(x, 0) * from_vector<float>({1, 2, 3}, {3, 1});
    const auto g = to_vector<float>(tape.gradient(weighted.sum(), x));
    EXPECT_EQ(g, id == 0 ? std::vector<float>{2} : (std::vector<float>{4, 6}));
  });
}

TEST(Reduce, OverReplicasAndAxes) {
  const auto strategy = two();
  const auto even = values({tensor({0, 1, 2, 3}), tensor({4, 5, 6, 7})});
  EXPECT_EQ(to_vector<float>(strategy.reduce(ReduceOp::kSum, even)),
            (std::vector<float>{4, 6, 8, 10}));
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, even, 0).item<float>(), 28);
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, even, 0).item<float>(), 3.5);
  const auto uneven = values({tensor({5, 6}), tensor({7})});
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, uneven, 0).item<float>(), 6);
  EXPECT_EQ(strategy.reduce(ReduceOp::kMax, uneven, -1).item<float>(), 7);
  EXPECT_EQ(strategy.reduce(ReduceOp::kMin, values({tensor({5, 6}), zeros({0})}), 0).item<float>(),
            5);
  EXPECT_THROW(strategy.reduce(ReduceOp::kMean, uneven, 3), InvalidArgument);
  EXPECT_THROW(strategy.reduce(ReduceOp::kSum, uneven), InvalidArgument);
  EXPECT_THROW(strategy.reduce(ReduceOp::kSum, scalar(1)), InvalidArgument);
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, scalar(1)).item<float>(), 1);
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, scalar(0)).item<float>(), 0);
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, PerReplica<int>({3, 4})), 7);
  const PerReplica<std::tuple<Tensor, int>> nest({{scalar(1), 2}, {scalar(3), 4}});
  const auto [a, b] = strategy.reduce(ReduceOp::kSum, nest);
  EXPECT_EQ(a.item<float>(), 4);
  EXPECT_EQ(b, 6);
}

TEST(Gather, JoinsAlongAnAxis) {
  const auto strategy = two();
  const auto rows = values({ones({2, 1}), ones({2, 2})});
  EXPECT_EQ(shape_of(strategy.gather(rows, 1)), (Shape{2, 3}));
  EXPECT_THROW(strategy.gather(rows, 0), InvalidArgument);
}

TEST(Values, FromAFunction) {
  const auto strategy = two();
  const auto out = strategy.distribute_values_from_function([](const ValueContext& c) {
    return c.replica_id_in_sync_group * 10 + c.num_replicas_in_sync;
  });
  EXPECT_EQ(strategy.local_results(out), (std::vector<int>{2, 12}));
  EXPECT_EQ(strategy.local_results(5), std::vector<int>{5});
}

TEST(LossScaling, SumsToTheGlobalMean) {
  const auto strategy = two();
  const auto losses = strategy.run(
      [](const Tensor& x) { return compute_average_loss(x, {.global_batch_size = 3}); },
      values({tensor({5, 6}), tensor({7})}));
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::kSum, losses).item<float>(), 6);
  // As TensorFlow, whose division is div_no_nan.
  EXPECT_EQ(compute_average_loss(tensor({3, 4}), {.global_batch_size = 0}).item<float>(), 0);
  const auto empty = strategy.run([] { return compute_average_loss(zeros({0})); });
  EXPECT_EQ(empty[0].item<float>(), 0);
  EXPECT_THROW(compute_average_loss(scalar(1)), InvalidArgument);
  const auto scope = strategy.scope();
  EXPECT_THROW(compute_average_loss(tensor({1})), FailedPrecondition);
  EXPECT_THROW(scale_regularization_loss(tensor({1})), FailedPrecondition);
}

// As TensorFlow: weights of rows weigh rows, and never make losses of pairs of rows.
TEST(LossScaling, WeightsAreThoseOfRows) {
  const auto average = [](const Tensor& losses, const Tensor& weights) {
    return compute_average_loss(losses, {.sample_weight = weights, .global_batch_size = 1})
        .item<float>();
  };
  EXPECT_EQ(average(tensor({3, 4}), tensor({1, 10})), 43);
  EXPECT_EQ(average(tensor({3, 4}), tensor({1, 10}).reshape({2, 1})), 43);
  const Tensor square = tensor({1, 2, 3, 4}).reshape({2, 2});
  EXPECT_EQ(average(square, tensor({1, 10})), 3 + 70);
  EXPECT_EQ(average(square, tensor({1, 10}).reshape({2, 1})), 3 + 70);
  EXPECT_EQ(average(square, tensor({1, 10}).reshape({1, 2})), 4 + 60);
  EXPECT_EQ(average(square, scalar(2)), 20);
  EXPECT_EQ(average(zeros({0}), zeros({0, 1})), 0);
  for (const Tensor& weights : {ones({3}), ones({2, 2}), ones({1, 2}), ones({2, 1, 1})}) {
    EXPECT_NE(testing::error_text<InvalidArgument>([&] {
                average(tensor({3, 4}), weights);
              }).find("[compute_average_loss] expected sample_weight of shape [2]"),
              std::string::npos);
  }
  EXPECT_THROW(average(tensor({3}), ones({4})), InvalidArgument);
}

TEST(Strategies, CheckTheirDevices) {
  EXPECT_THROW(MirroredStrategy({"CPU:0", "CPU:0"}), InvalidArgument);
  EXPECT_THROW(MirroredStrategy({"TPU:0"}), Unimplemented);
  EXPECT_THROW(OneDeviceStrategy("TPU:0"), Unimplemented);
  EXPECT_EQ(OneDeviceStrategy("CPU:0").run([] { return has_strategy(); })[0], true);
  EXPECT_GE(MirroredStrategy().num_replicas_in_sync(), 1);
  EXPECT_THROW(get_strategy().extended().worker_devices(), FailedPrecondition);
}

}  // namespace
}  // namespace cohort
