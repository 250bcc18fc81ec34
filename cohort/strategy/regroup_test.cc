// SPDX-License-Identifier: Apache-2.0
//
// Nests of distributed values: into run, out of it, through merge_call, reduce and local_results.
#include "cohort/values/regroup.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;

template <class T>
using Map = std::map<std::string, T>;

MirroredStrategy two() { return MirroredStrategy({"CPU:0", "CPU:1"}); }
PerReplica<Tensor> values(std::vector<Tensor> of) { return PerReplica<Tensor>(std::move(of)); }

template <class T>
struct Batch {
  T x;
  double scale = 1;
};

TEST(RunArguments, OfEveryKindOfNest) {
  const auto strategy = two();
  const PerReplica<int> p({1, 2});
  const auto scope = strategy.scope();
  const Variable v(scalar(7));
  const auto sums = strategy.run(
      [](const std::vector<int>& list, const Map<int>& map, const Batch<int>& batch,
         const std::optional<int>& maybe, const Variable& whole) {
        return list[0] + 10 * map.at("a") + 100 * batch.x + 1000 * *maybe +
               static_cast<int>(whole.impl().leaf_count());
      },
      std::vector<PerReplica<int>>{p}, Map<PerReplica<int>>{{"a", p}}, Batch<PerReplica<int>>{p},
      std::optional<PerReplica<int>>(p), v);
  EXPECT_EQ(strategy.local_results(sums), (std::vector<int>{1113, 2224}));
}

TEST(RunArguments, OneOfAnotherCountIsRefusedInsideNests) {
  const auto strategy = two();
  expect_error<InvalidArgument>({"[strategy.run] expected 2 values, got 3"}, [&] {
    strategy.run([](const std::vector<int>&) {},
                 std::vector<PerReplica<int>>{PerReplica<int>({1, 2, 3})});
  });
  EXPECT_EQ(strategy.run([] { return 1; })[1], 1);
}

TEST(RunArguments, AFunctionMayAskForTheDistributedValueItself) {
  const auto strategy = two();
  const PerReplica<int> p({1, 2});
  const auto out =
      strategy.run([](const std::vector<PerReplica<int>>& all) -> int { return all[0]; },
                   std::vector<PerReplica<int>>{p});
  EXPECT_EQ(out[1], 2);
}

TEST(RunResults, AreWholeAndUniformWhereAllAreOne) {
  const auto strategy = two();
  const auto out = strategy.run([] {
    const int id = get_replica_context().replica_id_in_sync_group();
    return std::tuple(id, std::vector<int>{5}, std::string("s"));
  });
  const auto [id, list, text] = out;
  EXPECT_FALSE(id.uniform());
  EXPECT_TRUE(list.uniform());
  EXPECT_EQ(std::string(text), "s");
  EXPECT_FALSE(strategy.run([] { return scalar(1); }).uniform());  // two tensors
  const Tensor one = scalar(1);
  EXPECT_TRUE(strategy.run([&] { return one; }).uniform());
}

TEST(MergeCall, SplitsNestsOfDistributedResults) {
  const auto strategy = two();
  const auto parts = strategy.run([&] {
    return get_replica_context().merge_call([](Strategy&) {
      const PerReplica<int> p({1, 2});
      return std::tuple(p, Map<Mirrored<int>>{{"m", Mirrored<int>({7})}}, Batch<PerReplica<int>>{p},
                        std::string("same"));
    });
  });
  static_assert(
      std::is_same_v<decltype(parts),
                     const PerReplica<std::tuple<int, Map<int>, Batch<int>, std::string>>>);
  EXPECT_EQ(std::get<0>(parts[1]), 2);
  EXPECT_EQ(std::get<1>(parts[1]).at("m"), 7);
  EXPECT_EQ(std::get<2>(parts[0]).x, 1);
  EXPECT_EQ(std::get<3>(parts[1]), "same");
  expect_error<InvalidArgument>({"[merge_call] expected 2 values, got 1"}, [&] {
    strategy.run(
        [] { get_replica_context().merge_call([](Strategy&) { return PerReplica<int>({1}); }); });
  });
}

TEST(MergeCall, AVariableArrivesAsOne) {
  const auto strategy = two();
  const auto scope = strategy.scope();
  const Variable v(scalar(1));
  strategy.run([&] {
    get_replica_context().merge_call(
        [&](Strategy&, const PerReplica<Variable>& all) {
          EXPECT_TRUE(all.uniform());
          const Variable& one = all;
          EXPECT_TRUE(one == v);
        },
        v);
  });
}

TEST(LocalResults, OfNestsIsOneNestPerReplica) {
  const auto strategy = two();
  const Map<PerReplica<int>> nest{{"x", PerReplica<int>({1, 2})}};
  EXPECT_EQ(strategy.local_results(nest), (std::vector<Map<int>>{{{"x", 1}}, {{"x", 2}}}));
  EXPECT_EQ(strategy.local_results(PerReplica<int>({1, 2})), (std::vector<int>{1, 2}));
  EXPECT_EQ(strategy.local_results(std::string("c")), std::vector<std::string>{"c"});
  expect_error<InvalidArgument>({"[strategy.local_results] expected 2 values, got 1"}, [&] {
    strategy.local_results(Map<PerReplica<int>>{{"x", PerReplica<int>({1})}});
  });
}

TEST(Reduce, OfNestsThatHoldDistributedValues) {
  const auto strategy = two();
  const std::tuple nest(values({scalar(1), scalar(2)}),
                        Map<PerReplica<int>>{{"n", PerReplica<int>({3, 4})}},
                        Mirrored<double>({5.0, 5.0}));
  const auto [t, m, same] = strategy.reduce(ReduceOp::kMax, nest);
  EXPECT_EQ(t.item<float>(), 2);
  EXPECT_EQ(m.at("n"), 4);
  EXPECT_EQ(same, 5);
  expect_error<InvalidArgument>({"[strategy.reduce]", "cannot be reduced with sum", "use mean"},
                                [&] { strategy.reduce(ReduceOp::kSum, nest); });
  const auto [rows, plain] =
      strategy.gather(std::pair(values({ones({1, 1}), ones({2, 1})}), std::string("as it is")), 0);
  EXPECT_EQ(shape_of(rows), (Shape{3, 1}));
  EXPECT_EQ(plain, "as it is");
}

TEST(Reduce, OfWhatIsTheSameEverywhere) {
  const auto strategy = two();
  const Mirrored<Tensor> same({tensor({1, 3}), tensor({1, 3})});
  EXPECT_EQ(to_vector<float>(strategy.reduce(ReduceOp::kMean, same)), (std::vector<float>{1, 3}));
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, same, 0).item<float>(), 2);
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, 1.5), 1.5);
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, 0), 0);
  expect_error<InvalidArgument>({"[strategy.reduce] expected a PerReplica", "sum", "use mean"},
                                [&] { strategy.reduce(ReduceOp::kSum, same); });
  expect_error<InvalidArgument>({"[strategy.reduce] expected a PerReplica", "product"},
                                [&] { strategy.reduce(ReduceOp::kProduct, 2); });
  EXPECT_EQ(OneDeviceStrategy("CPU:0").reduce(ReduceOp::kSum, 2), 2);
}

TEST(DistributeValues, StayPerReplicaEvenIfTheyAreOne) {
  const auto strategy = two();
  const auto constant =
      strategy.distribute_values_from_function([](const ValueContext&) { return 3.0; });
  static_assert(std::is_same_v<decltype(constant), const PerReplica<double>>);
  EXPECT_EQ(constant.size(), 2U);
  const auto nests = strategy.distribute_values_from_function(
      [](const ValueContext& c) { return std::pair(c.replica_id_in_sync_group, c.to_string()); });
  EXPECT_EQ(nests[1].second, "ValueContext(replica id 1, total replicas in sync: 2)");
  expect_error<FailedPrecondition>(
      {"[strategy.distribute_values_from_function] expected cross-replica context"}, [&] {
        strategy.run([&] {
          strategy.distribute_values_from_function([](const ValueContext&) { return 1; });
        });
      });
  EXPECT_EQ(get_strategy()
                .distribute_values_from_function(
                    [](const ValueContext& c) { return c.num_replicas_in_sync; })
                .local(),
            1);
}

TEST(OwnCrossDeviceOps, ReduceWhatTheStrategyReduces) {
  struct Counting : CrossDeviceOps {
    int calls = 0;
    ReductionToOneDevice inner;
    Mirrored<Gradient> do_reduce(ReduceOp op, const PerReplica<Gradient>& value,
                                 const Destinations& to, const CommunicationOptions& o) override {
      ++calls;
      return inner.reduce(op, value, to, o);
    }
  };
  const auto ops = std::make_shared<Counting>();
  const MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}, .cross_device_ops = ops});
  const auto x = values({tensor({1, 2}), tensor({3, 4})});
  EXPECT_EQ(to_vector<float>(strategy.reduce(ReduceOp::kSum, x)), (std::vector<float>{4, 6}));
  EXPECT_EQ(ops->calls, 1);
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, x, 0).item<double>(), 2.5);
  EXPECT_EQ(ops->calls, 2);
  strategy.extended().reduce_to(ReduceOp::kSum, x, Device("CPU:0"));
  EXPECT_EQ(ops->calls, 3);
}

}  // namespace
}  // namespace cohort
