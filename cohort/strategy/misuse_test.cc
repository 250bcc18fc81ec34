// SPDX-License-Identifier: Apache-2.0
//
// What users get wrong, and what must not harm them when they do.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <semaphore>
#include <thread>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

MirroredStrategy two() { return MirroredStrategy({"CPU:0", "CPU:1"}); }

TEST(Misuse, VariablesOfNoStrategyInARunOfTwo) {
  const Variable w(scalar(1));  // the scope is forgotten
  const auto strategy = two();
  EXPECT_THROW(strategy.run([&] {
    GradientTape tape;
    tape.gradient(w * w, std::span(&w, 1));
  }),
               FailedPrecondition);
  EXPECT_EQ(strategy.run([&] { return (w * 3).item<float>(); })[1], 3);  // reading is allowed
}

TEST(Misuse, AStrategyThatIsSetAndNeverUnset) {
  std::thread([] {
    const auto strategy = two();
    set_strategy(strategy);
    EXPECT_TRUE(has_strategy());
  }).join();
}

TEST(Misuse, AContextOfAnotherStrategy) {
  const auto strategy = two();
  const ReplicaContext outside = get_replica_context();
  testing::expect_error<FailedPrecondition>(
      {"runs here, " + strategy.extended().description(), "got one of the default strategy"},
      [&] { strategy.run([&] { outside.all_reduce(ReduceOp::kSum, scalar(1)); }); });
}

TEST(Misuse, SetStrategyInsideAMergeFunction) {
  const auto strategy = two();
  EXPECT_THROW(strategy.run([&] {
    get_replica_context().merge_call([](Strategy&) { set_strategy(std::nullopt); });
  }),
               FailedPrecondition);
}

TEST(Misuse, CopiesThatDivergeAreFoundWhereAsked) {
  const auto diverge = [](const MirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const Variable w(tensor({1, 2}), {.name = "w"});
    const Variable count(scalar(0), {.synchronization = Synchronization::kOnRead});
    strategy.run([&] { count.assign(scalar(get_replica_context().replica_id_in_sync_group())); });
    strategy.run([&] {
      w.assign(tensor({1.0, get_replica_context().replica_id_in_sync_group() + 2.0}));
    });
  };
  diverge(two());  // nobody looks
  const MirroredStrategy watched({.devices = {"CPU:0", "CPU:1"}, .check_copies = true});
  testing::expect_error<FailedPrecondition>({"\"w\"", "replica 1", "2", "3"},
                                            [&] { diverge(watched); });
  EXPECT_EQ(watched.run([] { return 1; })[1], 1);  // w is gone, and the strategy goes on
  ::setenv("COHORT_CHECK_COPIES", "1", 1);
  EXPECT_THROW(diverge(two()), FailedPrecondition);
  ::setenv("COHORT_CHECK_COPIES", "yes", 1);
  testing::expect_error<InvalidArgument>({"COHORT_CHECK_COPIES to be 0 or 1", "\"yes\""},
                                         [] { two(); });
  ::unsetenv("COHORT_CHECK_COPIES");
}

// Between two replicas' writes of another thread's run the copies differ, and may.
TEST(Misuse, CopiesAreComparedBetweenTheRunsOfAllThreads) {
  const MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}, .check_copies = true});
  const auto scope = strategy.scope();
  const Variable large(zeros({1 << 24}));  // which takes a while to compare
  const Variable w(scalar(0), {.name = "w"});
  std::binary_semaphore inside(0);
  std::atomic<bool> first_is_over{false};
  std::jthread other([&] {
    inside.acquire();
    strategy.run([&] {
      const int replica = get_replica_context().replica_id_in_sync_group();
      if (replica == 0) w.assign(1.0);
      while (replica == 0 && !first_is_over) std::this_thread::yield();
      internal::runtime::current_replica_group()->barrier();
      if (replica == 1) w.assign(1.0);
    });
  });
  EXPECT_NO_THROW(strategy.run([&] {
    if (get_replica_context().replica_id_in_sync_group() == 0) inside.release();
    internal::runtime::current_replica_group()->barrier();
  }));
  first_is_over = true;
}

TEST(Misuse, DivergenceAfterAMergeOfTheSameKind) {
  const auto strategy = two();
  testing::run_with_deadline(std::chrono::seconds(60), [&] {
    EXPECT_THROW(strategy.run([] {
      const auto ctx = get_replica_context();
      ctx.all_reduce(ReduceOp::kSum, scalar(1));
      if (ctx.replica_id_in_sync_group() == 0) {
        ctx.all_reduce(ReduceOp::kSum, scalar(1));
      } else {
        internal::runtime::current_replica_group()->barrier();
      }
    }),
                 FailedPrecondition);
  });
}

TEST(Run, TakesOptions) {
  const auto out = two().run(
      RunOptions{}, [](double x) { return x * 2; }, 3.0);
  EXPECT_EQ(out[1], 6);
}

TEST(Collectives, OfEveryKindOfLeaf) {
  const auto strategy = two();
  strategy.run([] {
    const auto ctx = get_replica_context();
    const int id = ctx.replica_id_in_sync_group();
    const IndexedSlices rows{tensor({1.0 + id}), tensor({double(id)}, kInt64), {2}};
    const IndexedSlices all = ctx.all_reduce(ReduceOp::kSum, rows);
    EXPECT_EQ(to_vector<float>(all.to_dense()), (std::vector<float>{1, 2}));
    const int64_t big = (int64_t{1} << 60) + id;
    EXPECT_EQ(ctx.all_reduce(ReduceOp::kMax, big), (int64_t{1} << 60) + 1);
  });
  EXPECT_THROW(strategy.run([] {
    get_replica_context().all_gather(IndexedSlices{tensor({1}), tensor({0}, kInt64), {2}}, 0);
  }),
               Unimplemented);
  EXPECT_THROW(strategy.run([] { get_replica_context().all_gather(3, 0); }), InvalidArgument);
  EXPECT_THROW(
      strategy.run([] { get_replica_context().all_reduce(ReduceOp::kSum, std::string("x")); }),
      InvalidArgument);
}

TEST(Reduce, APlainTensorWithAxesIsNotSummedSilently) {
  const auto strategy = two();
  EXPECT_THROW(strategy.reduce(ReduceOp::kSum, tensor({1, 2}), 0), InvalidArgument);
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, tensor({1, 2}), 0).item<float>(), 1.5);
}

TEST(PerReplica, AReferenceToAComponentOfAResultStaysValid) {
  const Tensor& second = two().run([] { return scalar(5); })[1];
  EXPECT_EQ(second.item<float>(), 5);
}

}  // namespace
}  // namespace cohort
