// SPDX-License-Identifier: Apache-2.0
//
// Parameter servers and their coordinator: V26, the S, P and K cases, T21 to T23 and T33. Servers
// and workers are threads of this process, reached over real connections.
#include <atomic>
#include <cmath>

#include "cohort/autograd/embedding.h"
#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/function.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/coordinator/partitioners.h"
#include "cohort/coordinator/sharded_variable.h"
#include "cohort/coordinator/test_cluster.h"
#include "cohort/keras/keras.h"
#include "tests/conformance/trial.h"

namespace cohort::conformance {
namespace {

using internal::coordinator::TestServers;
using testing::CoordinatedStrategy;
using testing::TestCluster;
using Parts = std::vector<int64_t>;

std::vector<int> tasks_of(const std::vector<Variable>& variables) {
  std::vector<int> out;
  for (const Variable& v : variables) out.push_back(v.device().task());
  return out;
}

// The rows 1..2, 3..4, ... in shards of these sizes.
ShardedVariable rows_in(const Parts& sizes) {
  std::vector<Variable> shards;
  int64_t first = 1;
  for (const int64_t rows : sizes) {
    shards.emplace_back(arange(rows * 2).reshape({rows, 2}) + first);
    first += rows * 2;
  }
  return ShardedVariable(std::move(shards));
}

CONFORMANCE(V26_ReadsThatAreKept) {
  const TestServers servers(1);
  const Strategy strategy = servers.coordinator();
  const auto scope = strategy.scope();
  const Variable v(1.0);
  Tensor first, second;
  Word nested;
  {
    const auto cache = strategy.extended().cache_variable_reads();
    first = v.value().clone();
    v.assign(5.0);
    second = v.value().clone();
    nested = outcome([&] { const auto again = strategy.extended().cache_variable_reads(); });
  }
  return show(first, second, v.value(), nested);
}

CONFORMANCE(S01_TheFirstPartsHaveOneRowMore) {
  return show(internal::coordinator::split_sizes(13, 5));
}

CONFORMANCE(S02_ShardsTakeServersInTurn) {
  const TestServers servers(2);
  const Strategy strategy = servers.coordinator(fixed_shards_partitioner(4));
  const auto scope = strategy.scope();
  const Variable v(arange(10).to(kFloat32));
  std::vector<Tensor> values;
  for (const Variable& shard : v.components()) values.push_back(shard.value());
  return show(values, tasks_of(v.components()));
}

CONFORMANCE(S04_RowsOfTwoShards) {
  const TestServers servers(1);
  const Strategy strategy = servers.coordinator(fixed_shards_partitioner(2));
  const auto scope = strategy.scope();
  std::vector<int64_t> rows;
  for (const Variable& shard : Variable(zeros({5, 2})).components()) {
    rows.push_back(shard.shape()[0]);
  }
  return show(rows);
}

CONFORMANCE(S05_ALookUpOverShards) {
  const ShardedVariable table = rows_in({2, 2, 1});
  return show(embedding_lookup(table, tensor({0, 3, 4}, kInt64)));
}

template <class I>
concept IndexOfRows = requires(const ShardedVariable& v, const I& index) {
  v[{index}];
};

CONFORMANCE(S07_RowsThatAreNone) {
  const ShardedVariable v = rows_in({4, 3, 3});
  return show(compiles(IndexOfRows<Tensor>), outcome([&] { v[{10}]; }));
}

CONFORMANCE(S09_UnlikeShards) {
  const auto made = [](const Tensor& a, const Tensor& b) {
    return outcome([&] { ShardedVariable({Variable(a), Variable(b)}); });
  };
  return show(made(zeros({2, 2}), zeros({2, 2}, kInt64)), made(zeros({2, 2}), zeros({2, 3})));
}

CONFORMANCE(P01_SmallShards) {
  const auto parts = [](int most) {
    return min_size_partitioner({.min_shard_bytes = 4, .max_shards = most})({6, 1}, kFloat32);
  };
  return show(parts(2), parts(10));
}

CONFORMANCE(P03_ShardsOf256KiB) {
  const Parts parts = min_size_partitioner({.max_shards = 2})({1024, 1024}, kFloat32);
  return show(parts, internal::coordinator::split_sizes(1024, parts[0]));
}

CONFORMANCE(P04_NumbersOfNothing) {
  return show(outcome([] { fixed_shards_partitioner(0); }),
              outcome([] { min_size_partitioner({.min_shard_bytes = 0}); }),
              outcome([] { max_size_partitioner({.max_shard_bytes = 0}); }));
}

CONFORMANCE(P05_TwoAxesAtOnce) {
  const TestServers servers(1);
  const Strategy strategy = servers.coordinator([](const Shape&, DType) { return Parts{2, 2}; });
  const auto scope = strategy.scope();
  return show(outcome([] { Variable(zeros({4, 4})); }));
}

CONFORMANCE(P06_VariablesTakeServersInTurn) {
  const TestServers servers(3);
  const Strategy strategy = servers.coordinator();
  const auto scope = strategy.scope();
  std::vector<Variable> all;
  for (int i = 0; i < 4; ++i) all.emplace_back(1.0);
  return show(tasks_of(all));
}

// What the K cases schedule.
using Nest = std::tuple<int, std::tuple<int, int>, std::vector<int>, std::map<std::string, int>>;
Nest case_nest() { return {2, {3, 4}, {5}, {{"v", 1}}}; }
int case_one() { return 1; }
int case_throws() { throw InvalidArgument("on purpose"); }
int case_not_registered() { return 1; }
std::atomic<bool> may_go = false;
void case_waits() { may_go.wait(false); }
COHORT_REGISTER_FUNCTION(case_waits);
COHORT_REGISTER_FUNCTION(case_nest);
COHORT_REGISTER_FUNCTION(case_one);
COHORT_REGISTER_FUNCTION(case_throws);

struct Job {
  explicit Job(int workers = 2) : cluster(workers, 1) {}
  TestCluster cluster;
  CoordinatedStrategy strategy{cluster.options()};
  ClusterCoordinator coordinator{strategy};
};

CONFORMANCE(K01_ANestAsAResult) {
  Job job;
  return show(job.coordinator.fetch(job.coordinator.schedule(case_nest)));
}

CONFORMANCE(K03_NothingScheduled) {
  Job job;
  return show(outcome([&] { job.coordinator.join(); }), job.coordinator.done());
}

CONFORMANCE(K04_WhatIsNotRegistered) {
  Job job;
  return show(outcome([&] { job.coordinator.schedule(case_not_registered); }));
}

CONFORMANCE(K05_AClosureThrows) {
  Job job;
  job.coordinator.schedule(case_throws);
  const Word first = outcome([&] { job.coordinator.join(); });
  const Word second = outcome([&] { job.coordinator.join(); });
  return show(first, second, job.coordinator.schedule(case_one).get());
}

CONFORMANCE(K06_WhatIsQueuedBehindAnError) {
  may_go = false;
  Job job(1);
  job.coordinator.schedule(case_waits);
  job.coordinator.schedule(case_throws);
  std::vector<RemoteValue<int>> behind;
  for (int i = 0; i < 3; ++i) behind.push_back(job.coordinator.schedule(case_one));
  may_go = true;
  may_go.notify_all();
  const Word joined = outcome([&] { job.coordinator.join(); });
  std::vector<Word> results;
  for (const auto& each : behind) results.push_back(outcome([&] { return each.get(); }));
  return show(joined, results);
}

template <class F, class... A>
concept Schedulable = requires(ClusterCoordinator& c, F f, const A&... args) {
  c.schedule(f, args...);
};

CONFORMANCE(K07_ARemoteValueAsAnArgument) {
  using Function = Tensor (*)(const Tensor&);
  return show(compiles(Schedulable<Function, RemoteValue<Tensor>>));
}

CONFORMANCE(K09_AWorkerIsLostWithWorkInFlight) {
  Job job;
  std::vector<RemoteValue<int>> all;
  for (int i = 0; i < 100; ++i) all.push_back(job.coordinator.schedule(case_one));
  job.cluster.stop("worker", 0);
  job.cluster.start("worker", 0);
  const Word joined = outcome([&] { job.coordinator.join(); });
  int sum = 0;
  for (const auto& each : all) sum += each.get();
  return show(joined, sum);
}

CONFORMANCE(K10_AServerIsLost) {
  Job job(1);
  job.cluster.stop("ps", 0);
  return show(outcome([&] {
                while (true) job.coordinator.schedule(case_one);
              }),
              outcome([&] {
                while (true) {
                  job.coordinator.schedule(case_one);
                  job.coordinator.join();
                }
              }));
}

CONFORMANCE(K11_TwoCoordinatorsOfOneStrategy) {
  Job job(1);
  return show(ClusterCoordinator(job.strategy) == job.coordinator);
}

template <class T>
concept HasNext = requires(T& iterator) {
  iterator.next();
};

CONFORMANCE(K12_NextAtTheCoordinator) { return show(compiles(HasNext<PerWorkerIterator>)); }

CONFORMANCE(K13_NoWorkersOrServers) {
  const auto connected = [](const ClusterSpec& spec) {
    return outcome([&] { internal::coordinator::ClusterConnection({.spec = spec}); });
  };
  return show(connected(ClusterSpec({{"ps", {"127.0.0.1:1"}}})),
              connected(ClusterSpec({{"worker", {"127.0.0.1:1"}}})));
}

Dataset case_data(const InputContext&) {
  return Dataset::from_tensors({ones({8, 1}), ones({8, 1})}).repeat();
}
// Shard i has i right answers among its 64 rows.
Dataset case_shards(const InputContext&) {
  return Dataset::range(32).map([](const Tensor& shard) {
    const int64_t right = shard.item<int64_t>();
    return std::pair(zeros({64, 1}), (arange(64) >= right).to(kFloat32).reshape({64, 1}));
  });
}
// 512 zeros and 512 ones, with outputs that rise from 0 to 1 over each half.
Dataset case_ramps(const InputContext&) {
  const Tensor ramp = arange(512).to(kFloat32) / 511;
  const Tensor truth = (arange(1024) >= 512).to(kFloat32);
  return Dataset::from_tensor_slices(
             {concat(std::vector{ramp, ramp}).reshape({1024, 1}), truth.reshape({1024, 1})})
      .batch(16);
}
COHORT_REGISTER_FUNCTION(case_ramps);
COHORT_REGISTER_FUNCTION(case_data);
COHORT_REGISTER_FUNCTION(case_shards);

struct FitJob {
  explicit FitJob(int workers = 1) : cluster(workers, 1) {}
  TestCluster cluster;
  ParameterServerStrategy strategy{
      {.cluster_resolver = std::make_shared<SimpleClusterResolver>(cluster.spec())}};
  Scope scope{strategy.scope()};
};

CONFORMANCE(T21_WhatFitOnParameterServersRefuses) {
  FitJob job;
  keras::Sequential model({keras::Dense(1)}), eager({keras::Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  eager.compile({.optimizer = "sgd", .loss = "mse", .run_eagerly = true});
  const keras::DatasetCreator data(case_data);
  return show(
      outcome([&] { model.fit(data, {.verbose = keras::Verbose::kBar, .steps_per_epoch = 1}); }),
      outcome([&] { eager.fit(data, {.steps_per_epoch = 1}); }), outcome([&] {
        model.fit(data,
                  {.callbacks = {keras::LambdaCallback({.on_train_batch_begin = [](int64_t) {}})},
                   .steps_per_epoch = 1});
      }),
      static_cast<int>(model.fit(data, {.steps_per_epoch = 1}).params.verbose));
}

CONFORMANCE(T22_EachShardIsCountedOnce) {
  FitJob job(5);
  keras::Sequential model({keras::Flatten()});
  model.compile({.loss = "mae", .metrics = {"binary_accuracy"}, .pss_evaluation_shards = 32});
  const keras::LambdaCallback lose({.on_test_begin = [&] {
    job.cluster.stop("worker", 1);
    job.cluster.start("worker", 1);
  }});
  const keras::Logs logs =
      model.evaluate(keras::DatasetCreator(case_shards),
                     {.callbacks = {lose}, .verbose = keras::Verbose::kSilent});
  return show(logs.number("binary_accuracy"), logs.number("loss"));
}

CONFORMANCE(T23_AnEvaluationWithoutEnd) {
  FitJob job;
  keras::Sequential model({keras::Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  return show(outcome([&] { model.evaluate(keras::DatasetCreator(case_data)); }));
}

CONFORMANCE(T33_AMetricOfAllWorkers) {
  FitJob job(2);
  keras::Sequential model({keras::Flatten()});
  model.compile({.loss = "mse", .metrics = {keras::AUC({.name = "auc"}), "mae"}});
  const keras::Logs logs =
      model.evaluate(keras::DatasetCreator(case_ramps), {.verbose = keras::Verbose::kSilent});
  const auto rounded = [&](const char* name) { return std::round(logs.number(name) * 1e5) / 1e5; };
  return show(rounded("auc"), rounded("mae"));
}

}  // namespace
}  // namespace cohort::conformance
