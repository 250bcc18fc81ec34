// SPDX-License-Identifier: Apache-2.0
//
// What every replica of every worker reads, by options and policies.
#include "cohort/strategy/distributed_dataset.h"

#include <gtest/gtest.h>

#include <atomic>
#include <concepts>

#include "cohort/strategy/strategies.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;
using testing::run_with_deadline;
using testing::Workers;
using Numbers = std::vector<int64_t>;
using Step = std::vector<Numbers>;
using Steps = std::vector<Step>;

constexpr std::chrono::seconds kLimit(60);

MirroredStrategy two() { return MirroredStrategy({"CPU:0", "CPU:1"}); }

Step numbers_of(const PerReplica<Element>& batch) {
  Step step;
  for (const Element& part : batch) step.push_back(to_vector<int64_t>(part.tensor()));
  return step;
}

Steps steps_of(const DistributedDataset& dist) {
  Steps out;
  for (const auto& batch : dist) out.push_back(numbers_of(batch));
  if (dist.cardinality() >= 0) {
    EXPECT_EQ(dist.cardinality(), static_cast<int64_t>(out.size()));
  }
  return out;
}

Dataset with_policy(const Dataset& dataset, AutoShardPolicy policy) {
  return dataset.with_options({.auto_shard_policy = policy});
}

/// The same batches where rows are in memory, and where a function makes them.
std::vector<Dataset> batches(int64_t rows, int64_t size) {
  const auto same = [](const Tensor& x) { return x; };
  return {Dataset::range(rows).batch(size), Dataset::range(rows).map(same).batch(size),
          Dataset::range(rows).batch(size).prefetch(2)};
}

TEST(DistributeDataset, PartialBatchesAreEvenUnlessShardingIsOff) {
  for (const Dataset& ds : batches(10, 4)) {
    EXPECT_EQ(steps_of(two().distribute_dataset(ds)),
              (Steps{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8}, {9}}}));
    EXPECT_EQ(steps_of(two().distribute_dataset(with_policy(ds, AutoShardPolicy::kOff))),
              (Steps{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8, 9}, {}}}));
  }
}

TEST(DistributeDataset, OneReplicaReadsElementsAsTheyAre) {
  for (const Strategy& one : {get_strategy(), Strategy(OneDeviceStrategy("CPU:0")),
                              Strategy(MirroredStrategy({"CPU:0"}))}) {
    const auto dist = one.distribute_dataset(Dataset::range(3));
    int64_t sum = 0;
    for (const auto& batch : dist) {
      const Element& element = batch;  // No need to say which replica.
      sum = sum * 10 + element.tensor().item<int64_t>();
    }
    EXPECT_EQ(sum, 12);
    EXPECT_EQ(dist.element_spec(), Dataset::range(3).element_spec());
  }
}

TEST(DistributeDataset, RefusesOptionsThatDoNotFit) {
  const Strategy strategy = two();
  const auto refuse = [&](const InputOptions& options, std::string_view word) {
    for (const bool from_function : {false, true}) {
      expect_error<InvalidArgument>({from_function ? "[strategy.distribute_datasets_from_function]"
                                                   : "[strategy.distribute_dataset]",
                                     word},
                                    [&] {
                                      const auto ds = Dataset::range(10).batch(4);
                                      if (!from_function) strategy.distribute_dataset(ds, options);
                                      strategy.distribute_datasets_from_function(
                                          [&](const InputContext&) { return ds; }, options);
                                    });
    }
  };
  refuse({.fetch_to_device = false, .place_dataset_on_device = true}, "got kPerWorker");
  // Unset means true, as in TensorFlow.
  for (const std::optional<bool> fetch : {std::optional<bool>(), std::optional<bool>(true)}) {
    refuse({.fetch_to_device = fetch,
            .replication_mode = InputReplicationMode::kPerReplica,
            .place_dataset_on_device = true},
           "got fetch_to_device");
  }
  refuse({.per_replica_buffer_size = 0}, "got 0");
  expect_error<Unimplemented>({"kPerWorker", "use distribute_datasets_from_function"}, [&] {
    strategy.distribute_dataset(Dataset::range(10).batch(4),
                                {.replication_mode = InputReplicationMode::kPerReplica});
  });
}

TEST(DistributeDataset, WeightsOfReplicas) {
  const Strategy strategy = two();
  for (const Dataset& ds : batches(10, 4)) {
    EXPECT_EQ(steps_of(strategy.distribute_dataset(ds, {.replica_weights = {3, 1}})),
              (Steps{{{0, 1, 2}, {3}}, {{4, 5, 6}, {7}}, {{8, 9}, {}}}));
  }
  const auto refuse = [&](std::vector<double> weights, std::string_view word) {
    expect_error<InvalidArgument>({"replica_weights", word}, [&] {
      strategy.distribute_dataset(Dataset::range(10).batch(4),
                                  {.replica_weights = std::move(weights)});
    });
  };
  refuse({1}, "expected 2 replica_weights, one for each replica, got 1");
  refuse({1, 0}, "above 0, got [1, 0]");
  refuse({1, -1}, "above 0");
  refuse({1, std::numeric_limits<double>::quiet_NaN()}, "above 0");
  refuse({1, std::numeric_limits<double>::infinity()}, "above 0");
  refuse({1e308, 1e308}, "finite sum");
  expect_error<InvalidArgument>({"the function decides"}, [&] {
    strategy.distribute_datasets_from_function(
        [](const InputContext&) { return Dataset::range(4).batch(2); },
        {.replica_weights = {1, 1}});
  });
}

TEST(DistributeDataset, TakesTypedMapsBeforeAndAfterTheBatch) {
  const Strategy strategy = two();
  const auto twice = [](const Tensor& x, const Tensor& y) { return std::tuple(x * 2, y); };
  const auto pairs = Dataset::from_tensor_slices({arange(10).view({5, 2}), arange(5)});
  for (const Dataset& ds : {pairs.map(twice).batch(3), pairs.batch(3).map(twice)}) {
    int64_t sum = 0, rows = 0;
    for (const auto& batch : strategy.distribute_dataset(ds)) {
      for (const Element& part : batch) {
        const auto [x, y] = part.as<Tensor, Tensor>();
        sum += x.sum().item<int64_t>() + y.sum().item<int64_t>();
        rows += part.rows();
      }
    }
    EXPECT_EQ(sum, 2 * 45 + 10);
    EXPECT_EQ(rows, 5);
  }
  auto unbatched = strategy.distribute_dataset(pairs.map(twice)).make_iterator();
  EXPECT_THROW(unbatched.next(), InvalidArgument);
}

TEST(DistributeDataset, SaysWhatAReplicaGets) {
  const auto spec = [](const Dataset& ds, const InputOptions& options = {}) {
    return two().distribute_dataset(ds, options).element_spec().to_string();
  };
  const auto rows = Dataset::from_tensor_slices({zeros({10, 3}), arange(10)});
  EXPECT_EQ(spec(rows.batch(4)), "(float32[?,3], int64[?])");
  EXPECT_EQ(spec(rows.batch(4, {.drop_remainder = true})), "(float32[2,3], int64[2])");
  EXPECT_EQ(spec(rows.batch(5, {.drop_remainder = true})), "(float32[?,3], int64[?])");
  EXPECT_EQ(spec(rows.batch(4, {.drop_remainder = true}), {.replica_weights = {3, 1}}),
            "(float32[?,3], int64[?])");
  EXPECT_EQ(two().distribute_dataset(rows.batch(4)).global_batch_size(), 4);
  EXPECT_EQ(two().distribute_dataset(rows.batch(4).repeat()).cardinality(), kInfiniteCardinality);
}

Dataset batches_of_two(const InputContext&) { return Dataset::range(9).batch(2); }

TEST(DistributeFromFunction, D18_ReplicasTakeTurns) {
  const Strategy strategy = two();
  EXPECT_EQ(steps_of(strategy.distribute_datasets_from_function(batches_of_two)),
            (Steps{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8}, {}}}));
}

TEST(DistributeFromFunction, D17_KnownShapesEndWithTheLastFullRound) {
  const auto drop = [](int64_t rows) {
    return two().distribute_datasets_from_function([rows](const InputContext&) {
      return Dataset::range(rows).batch(2, {.drop_remainder = true});
    });
  };
  EXPECT_EQ(steps_of(drop(9)), (Steps{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}}));
  EXPECT_EQ(steps_of(drop(7)), (Steps{{{0, 1}, {2, 3}}}));
  EXPECT_EQ(drop(7).element_spec().to_string(), "int64[2]");
  EXPECT_EQ(drop(7).global_batch_size(), 4);
}

TEST(DistributeFromFunction, TellsTheFunctionItsPlace) {
  for (const int replicas : {1, 2, 3}) {
    std::vector<Device> devices;
    for (int r = 0; r < replicas; ++r) devices.emplace_back("CPU:" + std::to_string(r));
    const MirroredStrategy strategy(devices);
    std::vector<Numbers> contexts;
    const auto make = [&](const InputContext& c) {
      contexts.push_back({c.num_input_pipelines, c.input_pipeline_id, c.num_replicas_in_sync});
      return Dataset::range(c.input_pipeline_id + 1).batch(c.get_per_replica_batch_size(replicas));
    };
    strategy.distribute_datasets_from_function(make);
    EXPECT_EQ(contexts, (std::vector<Numbers>{{1, 0, replicas}}));
    contexts.clear();
    const auto dist = strategy.distribute_datasets_from_function(
        make, {.replication_mode = InputReplicationMode::kPerReplica});
    ASSERT_EQ(contexts.size(), static_cast<std::size_t>(replicas));
    for (int r = 0; r < replicas; ++r) {
      EXPECT_EQ(contexts[static_cast<std::size_t>(r)], (Numbers{replicas, r, replicas}));
    }
    // Replica r has r + 1 batches, and waits with empty ones.
    const Steps steps = steps_of(dist);
    ASSERT_EQ(steps.size(), static_cast<std::size_t>(replicas));
    EXPECT_EQ(steps.back().front(), replicas == 1 ? Numbers{0} : Numbers{});
    EXPECT_EQ(steps.back().back(), Numbers{replicas - 1});
  }
}

template <class F>
concept MakesInput = requires(const Strategy& strategy, F make) {
  strategy.distribute_datasets_from_function(make);
};

TEST(DistributeFromFunction, TakesWhatReturnsADataset) {
  static_assert(MakesInput<Dataset (*)(const InputContext&)>);
  static_assert(!MakesInput<int (*)(const InputContext&)>);
  static_assert(!MakesInput<DistributedDataset (*)(const InputContext&)>);
  static_assert(!MakesInput<Dataset>);
  expect_error<InvalidArgument>({"expected a function"}, [] {
    two().distribute_datasets_from_function(std::function<Dataset(const InputContext&)>());
  });
  expect_error<InvalidArgument>({"[strategy.distribute_datasets_from_function]"}, [] {
    two().distribute_datasets_from_function(
        [](const InputContext& c) {
          return c.input_pipeline_id == 0 ? Dataset::range(4).batch(2)
                                          : Dataset::from_tensor_slices(zeros({4, 2})).batch(2);
        },
        {.replication_mode = InputReplicationMode::kPerReplica});
  });
}

TEST(DistributedIterator, GetsTheEndInTwoWays) {
  auto it = two().distribute_dataset(Dataset::range(4).batch(4)).make_iterator();
  EXPECT_EQ(numbers_of(it.get_next()), (Step{{0, 1}, {2, 3}}));
  EXPECT_FALSE(it.get_next_as_optional());
  EXPECT_FALSE(it.next());
  testing::expect_error(ErrorCode::kOutOfRange, {}, [&] { it.get_next(); });
}

TEST(DistributedIterator, IsForCrossReplicaContext) {
  const Strategy strategy = two();
  auto it = strategy.distribute_dataset(Dataset::range(4).batch(4)).make_iterator();
  expect_error<FailedPrecondition>({"[distributed_iterator.next]", "cross-replica"},
                                   [&] { strategy.run([&] { it.next(); }); });
  EXPECT_TRUE(it.next());
}

TEST(DistributedDataset, Reduces) {
  const auto dist = two().distribute_dataset(Dataset::range(10).batch(4));
  const auto add = [](int64_t sum, const PerReplica<Element>& batch) {
    for (const Element& part : batch) sum += part.tensor().sum().item<int64_t>();
    return sum;
  };
  EXPECT_EQ(dist.reduce(int64_t{0}, add), 45);
  EXPECT_EQ(dist.reduce(int64_t{5}, add), 50);
}

TEST(DistributedIterator, ErrorsComeInTheirPlace) {
  const auto bad = [](const Tensor& x) {
    if (x[0].item<int64_t>() == 4) throw DataLoss("bad record");
    return x;
  };
  for (const std::optional<bool> fetch : {std::optional<bool>(), std::optional<bool>(false)}) {
    auto it = two()
                  .distribute_dataset(Dataset::range(12).batch(4).map(bad),
                                      {.fetch_to_device = fetch, .per_replica_buffer_size = 3})
                  .make_iterator();
    EXPECT_EQ(numbers_of(it.get_next()), (Step{{0, 1}, {2, 3}}));
    EXPECT_THROW(it.next(), DataLoss);
    EXPECT_EQ(numbers_of(it.get_next()), (Step{{8, 9}, {10, 11}}));
    EXPECT_FALSE(it.next());
  }
}

TEST(DistributedIterator, ReadsAheadWhereThatHelps) {
  // On which thread a function runs tells whether anybody reads ahead.
  const auto caller = std::this_thread::get_id();
  const auto on_caller = [&](const InputOptions& options, bool user_prefetch) {
    std::atomic<bool> here = false;
    auto ds = Dataset::range(8).batch(4).map([&](const Tensor& x) {
      here = std::this_thread::get_id() == caller;
      return x;
    });
    if (user_prefetch) ds = ds.prefetch(1);
    auto it = two().distribute_dataset(ds, options).make_iterator();
    it.next();
    return here.load();
  };
  EXPECT_FALSE(on_caller({}, false));
  EXPECT_FALSE(on_caller({.fetch_to_device = true}, false));
  EXPECT_TRUE(on_caller({.fetch_to_device = false}, false));
  EXPECT_FALSE(on_caller({.fetch_to_device = false}, true));
}

TEST(DistributedIterator, IsAsFarAheadAsTheBufferSays) {
  constexpr int kSteps = 3;
  std::atomic<int> made = 0;
  std::mutex mutex;
  std::condition_variable more;
  const auto count = [&](const Tensor& x) {
    ++made;
    { std::lock_guard lock(mutex); }
    more.notify_one();
    return x;
  };
  auto it = two()
                .distribute_dataset(Dataset::range(100).batch(2).map(count),
                                    {.per_replica_buffer_size = kSteps})
                .make_iterator();
  it.next();
  run_with_deadline(kLimit, [&] {
    std::unique_lock lock(mutex);
    more.wait(lock, [&] { return made == kSteps + 1; });
  });
  // What was taken, what waits, and no more: saving lets the thread rest.
  it.save();
  EXPECT_EQ(made, kSteps + 1);
}

TEST(DistributedIterator, CancelsAndReportsAsAnyIterator) {
  const auto same = [](const Tensor& x) { return x; };
  const auto ds = Dataset::range(12).batch(4).map(same).with_options({.report = true});
  auto it = two().distribute_dataset(ds).make_iterator();
  it.next();
  EXPECT_FALSE(it.report().nodes.empty());
  it.cancel();
  EXPECT_THROW(it.next(), Cancelled);
}

TEST(DistributedIterator, APositionIsOneOfAnyNumberOfReplicas) {
  const auto make = [](int replicas) {
    std::vector<Device> devices;
    for (int r = 0; r < replicas; ++r) devices.emplace_back("CPU:" + std::to_string(r));
    const auto same = [](const Tensor& x) { return x; };
    return MirroredStrategy(devices).distribute_dataset(
        Dataset::range(24).shuffle(24, {.seed = 3}).batch(6).map(same));
  };
  const auto flat = [](const Steps& steps) {
    Numbers out;
    for (const Step& step : steps) {
      for (const Numbers& part : step) out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  };
  const auto rest = [](DistributedIterator& it) {
    Steps out;
    while (const auto batch = it.next()) out.push_back(numbers_of(*batch));
    return out;
  };
  auto it = make(2).make_iterator();
  it.next();
  it.next();
  const std::string state = it.save();
  const Numbers expected = flat(rest(it));
  EXPECT_EQ(expected.size(), 12U);
  for (const int replicas : {1, 2, 3}) {
    auto resumed = make(replicas).make_iterator(state);
    EXPECT_EQ(flat(rest(resumed)), expected) << replicas << " replicas";
  }
  // Also after the end, and an error leaves the position alone.
  EXPECT_THROW(it.restore("nonsense"), InvalidArgument);
  EXPECT_FALSE(it.next());
  it.restore(state);
  EXPECT_EQ(flat(rest(it)), expected);
}

/// Every worker's steps.
std::vector<Steps> play(const Workers& workers, const Dataset& dataset,
                        const InputOptions& options = {}) {
  return run_with_deadline(kLimit, [&] {
    return workers.run([&](const Strategy& strategy) {
      return steps_of(strategy.distribute_dataset(dataset, options));
    });
  });
}

TEST(SeveralWorkers, D13_ShareBatchesByElements) {
  const Workers workers(2, 1);
  for (const Dataset& ds : batches(14, 8)) {
    for (const AutoShardPolicy policy : {AutoShardPolicy::kAuto, AutoShardPolicy::kData}) {
      EXPECT_EQ(
          play(workers, with_policy(ds, policy)),
          (std::vector<Steps>{{{{0, 1, 2, 3}}, {{8, 9, 10}}}, {{{4, 5, 6, 7}}, {{11, 12, 13}}}}));
    }
  }
  const Workers four(2, 2);
  const auto ds = Dataset::range(9).batch(8);
  EXPECT_EQ(play(four, ds),
            (std::vector<Steps>{{{{0, 1}, {4, 5}}, {{8}, {}}}, {{{2, 3}, {6, 7}}, {{}, {}}}}));
  EXPECT_EQ(play(four, ds, {.contiguous_shards = true}),
            (std::vector<Steps>{{{{0, 1}, {2, 3}}, {{8}, {}}}, {{{4, 5}, {6, 7}}, {{}, {}}}}));
  EXPECT_EQ(play(four, ds, {.replica_weights = {1, 1, 1, 5}, .contiguous_shards = true})[1][0],
            (Step{{2}, {3, 4, 5, 6, 7}}));
}

TEST(SeveralWorkers, D16_EachReadsEverythingWithoutSharding) {
  const Workers workers(2, 1);
  for (const Steps& steps :
       play(workers, with_policy(Dataset::range(4).batch(2), AutoShardPolicy::kOff))) {
    EXPECT_EQ(steps, (Steps{{{0}}, {{1}}, {{2}}, {{3}}}));
  }
}

TEST(SeveralWorkers, HintsAndBatchesOfTheirOwn) {
  const Workers workers(2, 2);
  const auto ds =
      with_policy(Dataset::range(14).shard(kShardHint, 0).batch(8), AutoShardPolicy::kHint);
  // Evens and odds; a batch of 8 lasts for two steps.
  EXPECT_EQ(play(workers, ds), (std::vector<Steps>{{{{0, 2}, {4, 6}}, {{8, 10}, {12}}},
                                                   {{{1, 3}, {5, 7}}, {{9, 11}, {13}}}}));
  expect_error<InvalidArgument>({"replica_weights of several workers"}, [&] {
    workers[0].distribute_dataset(ds, {.replica_weights = {1, 1, 1, 2}});
  });
  // One worker: the hint is replaced all the same.
  const auto alone =
      with_policy(Dataset::range(4).shard(kShardHint, 0).batch(4), AutoShardPolicy::kHint);
  EXPECT_EQ(steps_of(two().distribute_dataset(alone)), (Steps{{{0, 1}, {2, 3}}}));
}

TEST(SeveralWorkers, D15_WhoHasNoMoreDataWaitsWithEmptyBatches) {
  const Workers workers(2, 2);
  const auto make = [](const InputContext& c) {
    return Dataset::range(9).batch(2).shard(c.num_input_pipelines, c.input_pipeline_id);
  };
  const auto all = run_with_deadline(kLimit, [&] {
    return workers.run([&](const Strategy& strategy) {
      const auto dist = strategy.distribute_datasets_from_function(make);
      Steps out;
      for (const auto& batch : dist) out.push_back(numbers_of(batch));
      EXPECT_EQ(dist.element_spec().to_string(), "int64[?]");
      EXPECT_EQ(dist.global_batch_size(), 8);
      return out;
    });
  });
  EXPECT_EQ(all, (std::vector<Steps>{{{{0, 1}, {4, 5}}, {{8}, {}}}, {{{2, 3}, {6, 7}}, {{}, {}}}}));
}

TEST(SeveralWorkers, OneWithoutAnyDataTakesPart) {
  const Workers workers(3, 1);
  const auto make = [](const InputContext& c) {
    return Dataset::from_tensor_slices({zeros({4, 3}), arange(4)})
        .take(c.input_pipeline_id == 1 ? 4 : 0)
        .batch(2);
  };
  const auto specs = run_with_deadline(kLimit, [&] {
    return workers.run([&](const Strategy& strategy) {
      std::string out;
      for (const auto& batch : strategy.distribute_datasets_from_function(make)) {
        out += batch[0].materialize().spec().to_string();
      }
      return out;
    });
  });
  const std::string empty = "(float32[0,3], int64[0])", full = "(float32[2,3], int64[2])";
  EXPECT_EQ(specs, (std::vector<std::string>{empty + empty, full + full, empty + empty}));
}

TEST(SeveralWorkers, D26_ToldToTheFunction) {
  const Workers workers(3, 2);
  const auto context = [&](InputReplicationMode mode) {
    std::vector<Numbers> out;
    workers[1].distribute_datasets_from_function(
        [&](const InputContext& c) {
          out.push_back({c.num_input_pipelines, c.input_pipeline_id, c.num_replicas_in_sync});
          return Dataset::range(4).batch(1);
        },
        {.replication_mode = mode});
    return out;
  };
  EXPECT_EQ(context(InputReplicationMode::kPerWorker), (std::vector<Numbers>{{3, 1, 6}}));
  EXPECT_EQ(context(InputReplicationMode::kPerReplica),
            (std::vector<Numbers>{{6, 2, 6}, {6, 3, 6}}));
}

}  // namespace
}  // namespace cohort
