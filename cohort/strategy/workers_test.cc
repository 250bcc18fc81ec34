// SPDX-License-Identifier: Apache-2.0
//
// What is global and what is local where a strategy is one of several workers: W workers of L
// replicas do what one worker with W x L does, and refuse what they would have to do together.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cohort/runtime/random.h"
#include "cohort/strategy/loss_scaling.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;
using testing::run_with_deadline;
using testing::Workers;

MirroredStrategy mirrored(int replicas) {
  std::vector<Device> devices;
  for (int r = 0; r < replicas; ++r) devices.emplace_back("CPU:" + std::to_string(r));
  return MirroredStrategy(devices);
}

/// Two workers with 1 and with 2 replicas each.
class WorkersOf : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int kWorkers = 2;
  int local() const { return GetParam(); }
  int total() const { return kWorkers * local(); }

  /// play(strategy) on each worker, joined in the order of the workers, beside one worker with as
  /// many replicas.
  template <class T, class Play>
  void expect_as_one_worker(const Play& play) {
    run_with_deadline(std::chrono::seconds(60), [&] {
      set_seed(11);
      const Workers workers(kWorkers, local());
      std::vector<T> joined;
      for (const std::vector<T>& own : workers.run(play)) {
        EXPECT_EQ(static_cast<int>(own.size()), local());
        joined.insert(joined.end(), own.begin(), own.end());
      }
      set_seed(11);
      EXPECT_EQ(joined, play(mirrored(total())));
    });
  }
};

using Numbers = std::vector<double>;

template <class T>
std::vector<T> listed(const PerReplica<T>& values) {
  return {values.begin(), values.end()};
}

TEST_P(WorkersOf, IdsAndCountsAreOfAllWorkers) {
  expect_as_one_worker<std::vector<int>>([](const Strategy& strategy) {
    return listed(strategy.run([&] {
      const ReplicaContext ctx = get_replica_context();
      return std::vector<int>{ctx.replica_id_in_sync_group(), ctx.num_replicas_in_sync(),
                              strategy.num_replicas_in_sync()};
    }));
  });
  const Workers workers(kWorkers, local());
  EXPECT_EQ(workers[1].extended().layout(), ReplicaLayout(1, kWorkers, local()));
  EXPECT_EQ(workers[1].extended().num_local_replicas(), local());
}

TEST_P(WorkersOf, ValuesFromAFunctionAreMadeForGlobalIds) {
  expect_as_one_worker<std::string>([](const Strategy& strategy) {
    return listed(strategy.distribute_values_from_function(
        [](const ValueContext& context) { return context.to_string(); }));
  });
}

TEST_P(WorkersOf, LossesAreDividedByTheGlobalNumber) {
  expect_as_one_worker<Numbers>([](const Strategy& strategy) {
    return listed(strategy.run([] {
      const Tensor losses = from_vector<float>({1, 2, 3}, {3});
      return Numbers{compute_average_loss(losses).item<double>(),
                     scale_regularization_loss(scalar(6)).item<double>()};
    }));
  });
  run_with_deadline(std::chrono::seconds(60), [&] {
    const Workers workers(kWorkers, local());
    const auto average = workers[0].run([] {
      return compute_average_loss(from_vector<float>({1, 2, 3}, {3})).item<double>();
    });
    EXPECT_FLOAT_EQ(average[0], 6.0 / (3 * total()));
  });
}

// What replica g of all draws depends on g alone, and what is drawn outside of replicas is the
// same on every worker.
TEST_P(WorkersOf, RandomNumbersAreThoseOfTheGlobalReplica) {
  expect_as_one_worker<Numbers>([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    const Numbers outside = to_vector<double>(random_normal({2}));
    std::vector<Numbers> drawn = listed(strategy.run([] {
      Numbers numbers = to_vector<double>(random_normal({3}));
      numbers.push_back(random_uniform({}).item<double>());
      return numbers;
    }));
    for (Numbers& own : drawn) own.insert(own.end(), outside.begin(), outside.end());
    return drawn;
  });
}

TEST_P(WorkersOf, BatchesAreSplitOverAllReplicas) {
  expect_as_one_worker<Numbers>([](const Strategy& strategy) {
    std::vector<Numbers> rows(static_cast<std::size_t>(strategy.extended().num_local_replicas()));
    // Without, workers take turns: worker 1 has parts 1 and 3 of four.
    const InputOptions in_a_row{.contiguous_shards = true};
    for (const auto& batch :
         strategy.distribute_dataset(data::Dataset::range(10).batch(6), in_a_row)) {
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const auto own = to_vector<double>(batch[r].tensor());
        rows[r].insert(rows[r].end(), own.begin(), own.end());
      }
    }
    return rows;
  });
}

TEST_P(WorkersOf, InputFunctionsHearOfTheirPipeline) {
  run_with_deadline(std::chrono::seconds(60), [&] {
    const Workers workers(kWorkers, local());
    const auto texts = workers.run([](const Strategy& strategy) {
      std::string text;
      const auto made = strategy.distribute_datasets_from_function([&](const InputContext& input) {
        text = str_cat(input.input_pipeline_id, " of ", input.num_input_pipelines, ", batch ",
                       input.get_per_replica_batch_size(8));
        return data::Dataset::range(4).batch(2);
      });
      return text;
    });
    EXPECT_EQ(texts[0], str_cat("0 of 2, batch ", 8 / total()));
    EXPECT_EQ(texts[1], str_cat("1 of 2, batch ", 8 / total()));
  });
}

// Assigned cross-replica, a sum over replicas is what was assigned: each of all has its share.
TEST_P(WorkersOf, SumsOnReadAreSharedOutOverAllReplicas) {
  expect_as_one_worker<double>([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    const Variable v(0.0, {.synchronization = Synchronization::kOnRead,
                           .aggregation = Aggregation::kSum,
                           .dtype = kFloat64});
    v.assign(scalar(12, kFloat64));
    return listed(strategy.run([&] { return v.value().item<double>(); }));
  });
}

// With nobody to carry it to the other workers it is refused, by name, and nothing hangs.
TEST_P(WorkersOf, WhatNeedsTheOtherWorkersIsRefused) {
  const Strategy strategy = Workers::alone(1, kWorkers, local());
  const auto scope = strategy.scope();
  const Variable v(1.0, {.trainable = false, .aggregation = Aggregation::kSum});
  const Variable read(
      0.0, {.synchronization = Synchronization::kOnRead, .aggregation = Aggregation::kSum});
  const auto numbers = [&] { return strategy.run([] { return scalar(1); }); };
  const auto refused = [&](const char* operation, const std::function<void()>& call) {
    SCOPED_TRACE(operation);
    run_with_deadline(std::chrono::seconds(60), [&] {
      expect_error<Unimplemented>({operation, "got worker 1 of 2", "made without a communicator"},
                                  call);
    });
  };
  refused("[strategy.reduce]", [&] { strategy.reduce(ReduceOp::kSum, numbers()); });
  refused("[strategy.gather]", [&] { strategy.gather(strategy.run([] { return ones({1}); }), 0); });
  refused("[strategy.barrier]", [&] { strategy.barrier(); });
  refused("[strategy.reduce_to]",
          [&] { strategy.extended().reduce_to(ReduceOp::kSum, numbers(), Device("CPU:0")); });
  refused("[variable.value]", [&] { read.value(); });
  refused("[variable.assign_add]", [&] {
    strategy.run([&] { v.assign_add(scalar(get_replica_context().replica_id_in_sync_group())); });
  });
  refused("[replica_context.all_reduce]", [&] {
    strategy.run([] { get_replica_context().all_reduce(ReduceOp::kSum, scalar(1)); });
  });
  EXPECT_EQ(v.value().item<float>(), 1);
}

// Of two workers with three replicas together, this one has one.
class Lopsided final : public internal::strategy::LocalStrategy {
 public:
  Lopsided() : LocalStrategy({.name = "Lopsided", .devices = {"CPU:0"}}) {}

 protected:
  InputContext do_input_context() const override {
    return {.num_input_pipelines = 2, .input_pipeline_id = 0, .num_replicas_in_sync = 3};
  }
};

TEST(Workers, NeedEqualNumbersOfReplicas) {
  const Strategy lopsided(std::make_shared<Lopsided>());
  expect_error<InvalidArgument>({"the same number of replicas"}, [&] {
    lopsided.distribute_dataset(data::Dataset::range(4).batch(2));
  });
}

INSTANTIATE_TEST_SUITE_P(LocalReplicas, WorkersOf, ::testing::Values(1, 2));

}  // namespace
}  // namespace cohort
