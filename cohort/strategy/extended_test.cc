// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;

MirroredStrategy two() { return MirroredStrategy({"CPU:0", "CPU:1"}); }
const std::vector<Device> kTwo = {"CPU:0", "CPU:1"};
PerReplica<Tensor> values(std::vector<Tensor> of) { return PerReplica<Tensor>(std::move(of)); }

std::vector<float> parts_of(const Variable& v) {
  std::vector<float> out;
  for (const Variable& part : v.components()) out.push_back(part.value().item<float>());
  return out;
}

TEST(Extended, Devices) {
  const auto mirrored = two();
  EXPECT_EQ(mirrored.extended().worker_devices(), kTwo);
  EXPECT_EQ(mirrored.extended().parameter_devices(), kTwo);
  const OneDeviceStrategy one("CPU:1");
  EXPECT_EQ(one.extended().worker_devices(), std::vector<Device>{"CPU:1"});
  EXPECT_EQ(one.extended().parameter_devices(), std::vector<Device>{"CPU:1"});
  StrategyExtended& standard = get_strategy().extended();
  expect_error<FailedPrecondition>({"[strategy.worker_devices]", "got the default one", "enter"},
                                   [&] { standard.worker_devices(); });
  expect_error<FailedPrecondition>({"[strategy.parameter_devices]", "got the default one", "enter"},
                                   [&] { standard.parameter_devices(); });
  EXPECT_TRUE(standard.should_checkpoint() && mirrored.extended().should_save_summary());
}

TEST(ReduceTo, PutsACopyOnEveryDestination) {
  const auto strategy = two();
  StrategyExtended& extended = strategy.extended();
  const auto x = values({tensor({1, 2}), tensor({3, 6})});
  const auto sum = extended.reduce_to(ReduceOp::kSum, x, kTwo);
  ASSERT_EQ(sum.size(), 2U);
  EXPECT_EQ(to_vector<float>(sum[1]), (std::vector<float>{4, 8}));
  EXPECT_NE(sum[0].data_ptr(), sum[1].data_ptr());
  EXPECT_EQ(extended.reduce_to(ReduceOp::kMean, x, Device("CPU:0")).size(), 1U);
  const auto scope = strategy.scope();
  const Variable v(zeros({2}));
  EXPECT_EQ(extended.reduce_to(ReduceOp::kMean, x, destinations_of(v)).size(), 2U);
}

TEST(ReduceTo, OfWhatIsTheSameOnAllReplicas) {
  const auto strategy = two();
  const Mirrored<Tensor> same({scalar(2)});
  EXPECT_EQ(strategy.extended().reduce_to(ReduceOp::kMean, same, kTwo)[1].item<float>(), 2);
  EXPECT_EQ(strategy.extended().reduce_to(ReduceOp::kMean, scalar(2), kTwo)[1].item<float>(), 2);
  EXPECT_EQ(strategy.extended().reduce_to(ReduceOp::kSum, scalar(0), kTwo)[1].item<float>(), 0);
  expect_error<InvalidArgument>({"[strategy.reduce_to] expected a PerReplica", "sum", "use mean"},
                                [&] { strategy.extended().reduce_to(ReduceOp::kSum, same, kTwo); });
  const OneDeviceStrategy one("CPU:0");
  EXPECT_EQ(one.extended().reduce_to(ReduceOp::kSum, same, Device("CPU:0"))[0].item<float>(), 2);
}

TEST(ReduceTo, RefusesMisuse) {
  const auto strategy = two();
  StrategyExtended& extended = strategy.extended();
  const auto x = values({scalar(1), scalar(2)});
  expect_error<InvalidArgument>({"[strategy.reduce_to] expected 2 values", "got 1"}, [&] {
    extended.reduce_to(ReduceOp::kSum, values({scalar(1)}), kTwo);
  });
  expect_error<InvalidArgument>({"expected at least 1 destination", "got none"}, [&] {
    extended.reduce_to(ReduceOp::kSum, x, std::vector<Device>{});
  });
  expect_error<FailedPrecondition>(
      {"[strategy.reduce_to] expected cross-replica context, got a replica", "all_reduce"},
      [&] { strategy.run([&] { extended.reduce_to(ReduceOp::kSum, x, kTwo); }); });
  expect_error<FailedPrecondition>(
      {"[strategy.broadcast_to] expected cross-replica context", "all_reduce"},
      [&] { strategy.run([&] { extended.broadcast_to(scalar(1)); }); });
  expect_error<FailedPrecondition>(
      {"[strategy.batch_reduce_to] expected cross-replica context", "all_reduce"},
      [&] { strategy.run([&] { extended.batch_reduce_to(ReduceOp::kSum, {}); }); });
}

TEST(BatchReduceTo, GivesTheResultsInOrder) {
  const auto strategy = two();
  const auto gradients = [](double a, double b) {
    return PerReplica<Gradient>({Gradient(scalar(a)), Gradient(scalar(b))});
  };
  const std::vector<ReduceItem> items = {{gradients(1, 2), kTwo},
                                         {gradients(5, 7), Device("CPU:1")}};
  const auto sums = strategy.extended().batch_reduce_to(ReduceOp::kSum, items);
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_EQ(sums[0][1].dense().item<float>(), 3);
  EXPECT_EQ(sums[1][0].dense().item<float>(), 12);
  const std::vector<ReduceItem> one = {{PerReplica<Gradient>({Gradient(scalar(1))}), kTwo}};
  expect_error<InvalidArgument>({"[strategy.batch_reduce_to] expected 2 values", "got 1"},
                                [&] { strategy.extended().batch_reduce_to(ReduceOp::kSum, one); });
  const auto same = get_strategy().extended().batch_reduce_to(ReduceOp::kSum, one);
  EXPECT_EQ(same[0][0].dense().item<float>(), 1);
  EXPECT_FALSE(same[0][0].dense().is_alias_of(one[0].value[0].dense()));
}

TEST(BroadcastTo, CopiesToDevices) {
  const auto strategy = two();
  EXPECT_EQ(strategy.extended().broadcast_to(scalar(3)).size(), 2U);
  EXPECT_EQ(strategy.extended().broadcast_to(scalar(3), Device("CPU:1"))[0].item<float>(), 3);
  StrategyExtended& standard = get_strategy().extended();
  const Tensor x = scalar(1);
  EXPECT_TRUE(standard.broadcast_to(x)[0].equal(x));
  expect_error<Unimplemented>({"[strategy.broadcast_to]", "leave the destinations out"},
                              [&] { standard.broadcast_to(x, kTwo); });
  EXPECT_TRUE(standard.reduce_to(ReduceOp::kSum, values({x}), kTwo)[0].equal(x));
}

TEST(Update, CallsOncePerComponentWithItsPartOfTheArguments) {
  const auto strategy = two();
  const auto scope = strategy.scope();
  const Variable v(scalar(0));
  const auto seen = strategy.extended().update(
      v,
      [&](const Variable& part, const Tensor& x, int shared, const std::tuple<int, int>& pair) {
        EXPECT_TRUE(in_cross_replica_context());
        EXPECT_TRUE(get_strategy() == strategy);
        EXPECT_FALSE(get_replica_context());
        EXPECT_EQ(v.local_tensor().data_ptr(), part.value().data_ptr());
        part.assign(x);
        return std::tuple(part.name(), internal::runtime::current_update_replica(), shared,
                          std::get<0>(pair));
      },
      values({scalar(1), scalar(2)}), 7, std::tuple(PerReplica<int>({4, 5}), 6));
  EXPECT_EQ(parts_of(v), (std::vector<float>{1, 2}));
  static_assert(
      std::is_same_v<decltype(seen), const Mirrored<std::tuple<std::string, int, int, int>>>);
  EXPECT_EQ(seen[0], std::tuple(std::string("Variable"), 0, 7, 4));
  EXPECT_EQ(seen[1], std::tuple(std::string("Variable/replica_1"), 1, 7, 5));
  const auto add = [](const Variable& part, const Tensor& x) { part.assign_add(x); };
  strategy.extended().update(v, add, values({scalar(1), scalar(2)}));
  EXPECT_EQ(parts_of(v), (std::vector<float>{2, 4}));
  strategy.extended().update(v, add, Mirrored<Tensor>({scalar(10)}));
  EXPECT_EQ(parts_of(v), (std::vector<float>{12, 14}));
  EXPECT_EQ(internal::runtime::current_update_replica(), -1);
  expect_error<InvalidArgument>({"[variable.local_tensor]", "inside strategy.run", "components()"},
                                [&] { v.local_tensor(); });
}

TEST(Update, InAReplicaIsAMergeThatRegroups) {
  const auto strategy = two();
  const auto scope = strategy.scope();
  const Variable v(scalar(0));
  const auto names = strategy.run([&] {
    const int id = get_replica_context().replica_id_in_sync_group();
    const Mirrored<int> ids = strategy.extended().update(
        v,
        [](const Variable& part, const Tensor& x, int of_replica) {
          EXPECT_TRUE(in_cross_replica_context());
          part.assign(x);
          return of_replica;
        },
        scalar(id + 1), id);
    strategy.extended().update(v, [](const Variable& part) { part.assign_add(10.0); });
    EXPECT_FALSE(in_cross_replica_context());
    return ids.local();
  });
  EXPECT_EQ(strategy.local_results(names), (std::vector<int>{0, 1}));
  EXPECT_EQ(parts_of(v), (std::vector<float>{11, 12}));
}

TEST(Update, UnderTheDefaultStrategyAndOneDevice) {
  const Variable v(scalar(1));
  const auto add = [](const Variable& part, const Tensor& x) {
    EXPECT_TRUE(in_cross_replica_context());
    part.assign_add(x);
    return 3;
  };
  EXPECT_EQ(get_strategy().extended().update(v, add, scalar(2)), 3);
  EXPECT_EQ(get_strategy().run(
                [&] { return get_strategy().extended().update(v, add, scalar(2)).local(); })[0],
            3);
  EXPECT_EQ(v.value().item<float>(), 5);
  const OneDeviceStrategy one("CPU:0");
  const auto scope = one.scope();
  const Variable w(scalar(1));
  one.extended().update(w, add, PerReplica<Tensor>({scalar(4)}));
  EXPECT_EQ(w.value().item<float>(), 5);
}

TEST(Update, RefusesMisuse) {
  const auto strategy = two();
  const auto other = two();
  const auto nothing = [](const Variable&) {};
  const auto take = [](const Variable&, int) {};
  Variable v, w;
  {
    const auto scope = strategy.scope();
    v = Variable(scalar(0), {.name = "v"});
    w = Variable(scalar(0), {.name = "w"});
  }
  StrategyExtended& extended = strategy.extended();
  expect_error<InvalidArgument>({"[strategy.update]", "made under MirroredStrategy#",
                                 "over CPU:0, CPU:1, got \"v\" (variable "},
                                [&] { other.extended().update(v, nothing); });
  expect_error<InvalidArgument>(
      {"[strategy.update]", "got component \"v/replica_1\"", "value_container"},
      [&] { extended.update(v.components()[1], nothing); });
  expect_error<InvalidArgument>({"[strategy.update] expected 2 values, got 3"}, [&] {
    extended.update(v, take, PerReplica<int>({1, 2, 3}));
  });
  expect_error<FailedPrecondition>({"[strategy.update]", "strategies cannot be mixed"}, [&] {
    const auto scope = other.scope();
    extended.update(v, nothing);
  });
  testing::run_with_deadline(std::chrono::seconds(60), [&] {
    expect_error<FailedPrecondition>({"[strategy.update]", "same variable", "got \"v\" (variable ",
                                      "\"w\" (variable ", "on replica 1"},
                                     [&] {
                                       strategy.run([&] {
                                         const bool first =
                                             get_replica_context().replica_id_in_sync_group() == 0;
                                         extended.update(first ? v : w, nothing);
                                       });
                                     });
    EXPECT_THROW(strategy.run([&] {
      extended.update(v, [](const Variable& part) {
        if (part.name() != "v") throw DataLoss("in the second");
      });
    }),
                 DataLoss);
    extended.update(v, nothing);
  });
}

TEST(UpdateNonSlot, CallsOncePerDevice) {
  const auto strategy = two();
  const auto scope = strategy.scope();
  const Variable b(scalar(0), {.name = "b"});
  const Variable a(scalar(0), {.name = "a"});
  StrategyExtended& extended = strategy.extended();
  const std::vector<Variable> both = {b, a};
  const auto devices = extended.non_slot_devices(both);
  EXPECT_EQ(devices, kTwo);
  const auto twice = [](int x) { return 2 * x; };
  const Mirrored<int> out = extended.update_non_slot(devices, twice, PerReplica<int>({3, 4}));
  EXPECT_EQ(out[0], 6);
  EXPECT_EQ(out[1], 8);
  EXPECT_EQ(extended.update_non_slot(Device("CPU:1"), twice, PerReplica<int>({3, 4}))[0], 8);
  expect_error<FailedPrecondition>(
      {"[strategy.update_non_slot] expected cross-replica context"},
      [&] { strategy.run([&] { extended.update_non_slot(kTwo, twice, 1); }); });
  expect_error<InvalidArgument>({"[strategy.update_non_slot]", "got CPU:7"},
                                [&] { extended.update_non_slot(Device("CPU:7"), twice, 1); });
  expect_error<InvalidArgument>({"[strategy.non_slot_devices]", "got none"},
                                [&] { extended.non_slot_devices({}); });
}

TEST(Colocation, TakesVariablesOfTheStrategyOnly) {
  const auto strategy = two();
  const Variable outside(scalar(1), {.name = "outside"});
  StrategyExtended& extended = strategy.extended();
  Variable v;
  {
    const auto scope = strategy.scope();
    v = Variable(scalar(1), {.synchronization = Synchronization::kOnRead});
    const auto beside = extended.colocate_vars_with(v);
    const Variable w(scalar(2));
    EXPECT_EQ(w.components().size(), 2U);
    EXPECT_TRUE(extended.variable_created_in_scope(w));
    expect_error<InvalidArgument>({"[strategy.colocate_vars_with]", "made under MirroredStrategy#",
                                   "\"outside\" (variable ", "of no strategy"},
                                  [&] { const auto bad = extended.colocate_vars_with(outside); });
  }
  expect_error<FailedPrecondition>({"[strategy.colocate_vars_with]", "enter strategy.scope()"},
                                   [&] { const auto bad = extended.colocate_vars_with(v); });
  EXPECT_EQ(Variable(scalar(2)).components().size(), 1U);
  const auto plain = get_strategy().extended().colocate_vars_with(outside);
  EXPECT_EQ(Variable(scalar(2)).components().size(), 1U);
}

TEST(ValueContainer, IsTheWholeOfAComponent) {
  const auto strategy = two();
  const auto scope = strategy.scope();
  const Variable v(scalar(1));
  EXPECT_TRUE(strategy.extended().value_container(v.components()[1]) == v);
  EXPECT_TRUE(strategy.extended().value_container(v) == v);
}

TEST(ReadVar, ReadsCrossReplica) {
  const auto strategy = two();
  const auto scope = strategy.scope();
  const Variable count(
      scalar(0), {.synchronization = Synchronization::kOnRead, .aggregation = Aggregation::kSum});
  strategy.run([&] { count.assign_add(1.0); });
  EXPECT_EQ(strategy.extended().read_var(count).item<float>(), 2);
  expect_error<FailedPrecondition>({"[strategy.read_var]", "got a replica", "value()"}, [&] {
    strategy.run([&] { strategy.extended().read_var(count); });
  });
}

}  // namespace
}  // namespace cohort
