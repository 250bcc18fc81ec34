// SPDX-License-Identifier: Apache-2.0
#include "strategy_cases.h"

#include <chrono>
#include <memory>

#include "cohort/base/check.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "reduce_limit.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kVariables = 100;
constexpr std::int64_t kVariableBytes = 1024;

std::vector<Device> cpus(int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.emplace_back(str_cat("CPU:", i));
  return devices;
}

template <class Body>
double time_of(std::int64_t steps, const Body& body) {
  const auto start = Clock::now();
  body();
  const std::chrono::duration<double, std::micro> spent = Clock::now() - start;
  return spent.count() / static_cast<double>(steps);
}

template <class Step>
double time_of_each(std::int64_t steps, const Step& step) {
  return time_of(steps, [&] {
    for (std::int64_t i = 0; i < steps; ++i) step();
  });
}

Tensor value_of(std::int64_t bytes, int replica) { return full({bytes / 4}, replica + 1); }

std::vector<Way> empty_run(int replicas) {
  const auto strategy = std::make_shared<MirroredStrategy>(cpus(replicas));
  return {{"cohort", [strategy](std::int64_t steps) {
             return time_of_each(steps, [&] { strategy->run([] {}); });
           }}};
}

// The run around it is shared by all steps.
std::vector<Way> merge_of_nothing(int replicas) {
  const auto strategy = std::make_shared<MirroredStrategy>(cpus(replicas));
  return {{"cohort", [strategy](std::int64_t steps) {
             return time_of(steps, [&] {
               strategy->run([steps] {
                 const ReplicaContext ctx = get_replica_context();
                 for (std::int64_t i = 0; i < steps; ++i) ctx.merge_call([](Strategy&) {});
               });
             });
           }}};
}

std::vector<Way> all_reduce(std::int64_t bytes, const std::vector<int>& cores) {
  const auto strategy = std::make_shared<MirroredStrategy>(cpus(2));
  const auto values = strategy->distribute_values_from_function(
      [&](const ValueContext& c) { return value_of(bytes, c.replica_id_in_sync_group); });
  std::vector<Way> ways = {{"cohort", [strategy, values](std::int64_t steps) {
                              return time_of(steps, [&] {
                                strategy->run(
                                    [steps](const Tensor& value) {
                                      const ReplicaContext ctx = get_replica_context();
                                      for (std::int64_t i = 0; i < steps; ++i) {
                                        ctx.all_reduce(ReduceOp::kSum, value);
                                      }
                                    },
                                    values);
                              });
                            }}};
  if (cores.size() > 1) {
    const auto limit = std::make_shared<ReduceLimit>(bytes, cores);
    ways.push_back({"limit", [limit](std::int64_t steps) { return limit->us(steps); }});
  }
  return ways;
}

std::vector<Way> many_variables() {
  const auto strategy = std::make_shared<MirroredStrategy>(cpus(2));
  const auto values = std::make_shared<PerReplica<std::vector<Tensor>>>(
      strategy->distribute_values_from_function([&](const ValueContext& c) {
        std::vector<Tensor> all;
        for (int i = 0; i < kVariables; ++i) {
          all.push_back(value_of(kVariableBytes, c.replica_id_in_sync_group));
        }
        return all;
      }));
  const auto timed = [strategy, values](auto reduce) {
    return [strategy, values, reduce](std::int64_t steps) {
      return time_of(steps, [&] {
        strategy->run(
            [&](const std::vector<Tensor>& mine) {
              const ReplicaContext ctx = get_replica_context();
              for (std::int64_t i = 0; i < steps; ++i) reduce(ctx, mine);
            },
            *values);
      });
    };
  };
  return {{"nest", timed([](const ReplicaContext& ctx, const std::vector<Tensor>& mine) {
             ctx.all_reduce(ReduceOp::kSum, mine);
           })},
          {"per_variable", timed([](const ReplicaContext& ctx, const std::vector<Tensor>& mine) {
             for (const Tensor& value : mine) ctx.all_reduce(ReduceOp::kSum, value);
           })}};
}

std::vector<Way> batch_reduce(int replicas, int variables, std::int64_t bytes) {
  const MirroredStrategy strategy(cpus(replicas));  // with the first one comes the allocator
  const auto items = std::make_shared<std::vector<ReduceItem>>();
  for (int i = 0; i < variables; ++i) {
    std::vector<Gradient> values;
    for (int r = 0; r < replicas; ++r) values.emplace_back(value_of(bytes, r));
    items->push_back({PerReplica<Gradient>(std::move(values)), cpus(replicas)});
  }
  const auto timed = [items](const std::shared_ptr<CrossDeviceOps>& ops) {
    return [items, ops](std::int64_t steps) {
      return time_of_each(steps, [&] { ops->batch_reduce(ReduceOp::kSum, *items); });
    };
  };
  return {{"reduction_to_one_device", timed(std::make_shared<ReductionToOneDevice>())},
          {"hierarchical_copy", timed(std::make_shared<HierarchicalCopyAllReduce>(1))},
          {"hierarchical_copy_2", timed(std::make_shared<HierarchicalCopyAllReduce>(2))},
          {"hierarchical_copy_unpacked", timed(std::make_shared<HierarchicalCopyAllReduce>(0))}};
}

// Bytes of one replica's value; 0 where there is none.
std::vector<std::pair<std::string, std::int64_t>> facts(int replicas, std::int64_t bytes) {
  return {{"replicas", replicas}, {"bytes", bytes}};
}

}  // namespace

std::vector<WaysCase> strategy_cases(const std::vector<int>& cores) {
  std::vector<WaysCase> cases;
  for (const int replicas : {1, 2, 4}) {
    cases.push_back({"run", facts(replicas, 0), [=] { return empty_run(replicas); }});
  }
  for (const int replicas : {1, 2, 4}) {
    cases.push_back({"merge_call", facts(replicas, 0), [=] { return merge_of_nothing(replicas); }});
  }
  for (const std::int64_t kib : {1, 16, 256, 1024, 16 * 1024, 64 * 1024}) {
    const std::int64_t bytes = kib * 1024;
    cases.push_back({"all_reduce", facts(2, bytes), [=] { return all_reduce(bytes, cores); }});
  }
  cases.push_back({"all_reduce_100", facts(2, kVariables * kVariableBytes), many_variables});
  cases.push_back({"batch_reduce_100", facts(2, kVariables * kVariableBytes),
                   [] { return batch_reduce(2, kVariables, kVariableBytes); }});
  constexpr std::int64_t kLarge = std::int64_t{4} << 20;
  cases.push_back({"batch_reduce", facts(2, kLarge), [] { return batch_reduce(2, 1, kLarge); }});
  cases.push_back({"batch_reduce", facts(4, kLarge), [] { return batch_reduce(4, 1, kLarge); }});
  return cases;
}

}  // namespace cohort::bench
