// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of variables and positions: saved under one strategy, restored under any other.
#include "cohort/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "cohort/checkpoint/test_objects.h"
#include "cohort/strategy/captured_context.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;

class StrategyCheckpoint : public testing::FolderTest {};

std::vector<Device> devices(int n) {
  std::vector<Device> out;
  for (int i = 0; i < n; ++i) out.emplace_back("CPU:" + std::to_string(i));
  return out;
}

/// The default one, one device, mirrored over 2 and 3, central storage over 2.
std::vector<Strategy> strategies() {
  return {get_strategy(), OneDeviceStrategy("CPU:0"), MirroredStrategy(devices(2)),
          MirroredStrategy(devices(3)), CentralStorageStrategy({.compute_devices = devices(2)})};
}

/// A variable of every kind that has one value.
struct Variables {
  explicit Variables(const Strategy& strategy) {
    constexpr auto kOnRead = Synchronization::kOnRead;
    const auto scope = strategy.scope();
    weight = Variable(zeros({2, 2}), {.name = "weight"});
    count =
        Variable(zeros({}, kInt64),
                 {.name = "count", .synchronization = kOnRead, .aggregation = Aggregation::kSum});
    mean =
        Variable(zeros({2}),
                 {.name = "mean", .synchronization = kOnRead, .aggregation = Aggregation::kMean});
    first = Variable(zeros({}, kFloat64), {.name = "first",
                                           .synchronization = kOnRead,
                                           .aggregation = Aggregation::kOnlyFirstReplica});
  }
  Checkpoint checkpoint() const {
    return Checkpoint({{"weight", weight}, {"count", count}, {"mean", mean}, {"first", first}});
  }
  std::vector<Tensor> values() const {
    std::vector<Tensor> out;
    for (const Variable& v : {weight, count, mean, first}) out.push_back(v.value().clone());
    return out;
  }

  Variable weight, count, mean, first;
};

TEST_F(StrategyCheckpoint, VariablesTravelBetweenAllStrategies) {
  for (const Strategy& from : strategies()) {
    const Variables source(from);
    source.weight.assign(from_vector<float>({1, 2, 3, 4}, {2, 2}));
    from.run([&] {
      const int r = get_replica_context().replica_id_in_sync_group();
      source.count.assign_add(scalar(6 + 6 * r, kInt64));
      source.mean.assign_add(full({2}, 1.5 + r));
      source.first.assign_add(scalar(0.1 * (r + 1), kFloat64));
    });
    const std::vector<Tensor> saved = source.values();
    source.checkpoint().save(path("x"));
    for (const Strategy& into : strategies()) {
      const Variables target(into);
      target.checkpoint().restore(path("x")).assert_consumed();
      const std::vector<Tensor> values = target.values();
      for (std::size_t i = 0; i < saved.size(); ++i) {
        EXPECT_TRUE(values[i].equal(saved[i]))
            << i << " from " << from.extended().name() << " into " << into.extended().name();
      }
      // Every replica's own copy, too.
      into.run([&] { EXPECT_TRUE(target.weight.value().equal(saved[0])); });
    }
  }
}

TEST_F(StrategyCheckpoint, AVariableWithoutOneValueCannotBeKept) {
  const MirroredStrategy strategy(devices(2));
  const auto scope = strategy.scope();
  const Variable own(zeros({2}), {.name = "own", .synchronization = Synchronization::kOnRead});
  EXPECT_THROW(Checkpoint({{"own", own}}).save(path("x")), InvalidArgument);
  EXPECT_TRUE(names().empty());
}

TEST_F(StrategyCheckpoint, ACheckpointKeepsVariablesAlive) {
  auto variable = std::make_unique<Variable>(ones({2}), VariableOptions{.name = "w"});
  const Checkpoint checkpoint({{"w", *variable}});
  variable.reset();
  EXPECT_NO_THROW(checkpoint.save(path("x")));
}

Dataset batches() {
  return Dataset::range(22).shuffle(7, {.seed = 3}).batch(4).repeat(2).prefetch(1);
}

/// The rows of each step, over all replicas.
std::vector<std::vector<int64_t>> rest_of(DistributedIterator& it) {
  std::vector<std::vector<int64_t>> steps;
  while (const auto step = it.next()) {
    steps.emplace_back();
    for (const Element& part : *step) {
      for (const int64_t x : to_vector<int64_t>(part.tensor())) steps.back().push_back(x);
    }
  }
  return steps;
}

TEST_F(StrategyCheckpoint, PositionsTravelBetweenNumbersOfReplicas) {
  for (const int from : {1, 2, 3}) {
    for (const int into : {1, 2, 4}) {
      const MirroredStrategy saving(devices(from)), restoring(devices(into));
      const auto source = saving.distribute_dataset(batches());
      for (const int place : {0, 1, 6, 11, 12}) {
        auto it = source.make_iterator();
        for (int i = 0; i < place; ++i) ASSERT_TRUE(it.next());
        Checkpoint({{"data", it}}).save(path("x"));
        auto other = restoring.distribute_dataset(batches()).make_iterator();
        other.next();
        Checkpoint({{"data", other}}).restore(path("x")).assert_consumed();
        const auto rest = rest_of(it);
        EXPECT_EQ(rest.size(), static_cast<std::size_t>(12 - place));
        EXPECT_EQ(rest_of(other), rest) << from << " to " << into << " at " << place;
      }
    }
  }
}

DistributedIterator from_function(int replicas, InputReplicationMode mode) {
  const MirroredStrategy strategy(devices(replicas));
  return strategy
      .distribute_datasets_from_function([](const InputContext&) { return batches(); },
                                         {.replication_mode = mode})
      .make_iterator();
}

std::vector<int64_t> rows_left(DistributedIterator& it) {
  std::vector<int64_t> rows;
  for (const std::vector<int64_t>& step : rest_of(it)) {
    rows.insert(rows.end(), step.begin(), step.end());
  }
  return rows;
}

TEST_F(StrategyCheckpoint, AnyNumberOfReplicasReadsOnFromOneFunction) {
  constexpr auto kMode = InputReplicationMode::kPerWorker;
  for (const int from : {1, 2, 3}) {
    for (const int into : {1, 2, 3}) {
      auto it = from_function(from, kMode);
      it.next();
      it.next();
      Checkpoint({{"data", it}}).save(path("x"));
      auto other = from_function(into, kMode);
      other.next();
      Checkpoint({{"data", other}}).restore(path("x"));
      EXPECT_EQ(rows_left(other), rows_left(it)) << from << " to " << into;
    }
  }
}

TEST_F(StrategyCheckpoint, ReplicasThatReadTheirOwnPipelinesStayAsMany) {
  constexpr auto kMode = InputReplicationMode::kPerReplica;
  auto two = from_function(2, kMode);
  two.next();
  Checkpoint({{"data", two}}).save(path("x"));
  auto same = from_function(2, kMode);
  Checkpoint({{"data", same}}).restore(path("x"));
  EXPECT_EQ(rest_of(same), rest_of(two));
  for (const int replicas : {1, 3}) {
    auto other = from_function(replicas, kMode);
    expect_error<InvalidArgument>({"[iterator.restore] expected a state of the pipeline"}, [&] {
      Checkpoint({{"data", other}}).restore(path("x"));
    });
  }
}

TEST_F(StrategyCheckpoint, FollowsADistributedIteratorThatMoves) {
  const MirroredStrategy strategy(devices(2));
  auto it = strategy.distribute_dataset(batches()).make_iterator();
  const Checkpoint checkpoint({{"data", it}});
  DistributedIterator moved = std::move(it);
  moved.next();
  checkpoint.save(path("x"));
  const auto rest = rest_of(moved);
  EXPECT_EQ(rest.size(), 11u);
  checkpoint.restore(path("x"));  // After the end, too.
  EXPECT_EQ(rest_of(moved), rest);
  strategy.run([&] {
    EXPECT_THROW(checkpoint.save(path("y")), FailedPrecondition);
    EXPECT_THROW(checkpoint.restore(path("x")), FailedPrecondition);
  });
}

// Sums may be added in another order there: the program is told, and how to have the same.
TEST_F(StrategyCheckpoint, TellsOfAnotherNumberOfIntraOpThreads) {
  const auto under = [](int threads) {
    return OneDeviceStrategy("CPU:0", {.intra_op_threads = threads});
  };
  const std::string saved = path("ckpt");
  Variables(under(1)).checkpoint().save(saved);
  const auto warning_of_restoring = [&](const Strategy& strategy, RestoreOptions options = {}) {
    ::testing::internal::CaptureStderr();
    Variables(strategy).checkpoint().restore(saved, options);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string warning = warning_of_restoring(under(3));
  EXPECT_NE(warning.find("give the strategy .intra_op_threads = 1"), std::string::npos) << warning;
  EXPECT_EQ(warning_of_restoring(under(1)), "");
  EXPECT_EQ(warning_of_restoring(under(3), {.allow_partial = true}), "")
      << "who evaluates does not go on";
}

}  // namespace
}  // namespace cohort
