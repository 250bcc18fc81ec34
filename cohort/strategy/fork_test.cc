// SPDX-License-Identifier: Apache-2.0
//
// A child after fork has a copy of its parent's strategy, iterators and caches, and none of their
// threads: what would wait for them says so at once. A child that waits is ended by its alarm.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cohort/strategy/strategies.h"
#include "cohort/testing/child.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::kCanLimitChildren;
using testing::status_of_child;

std::vector<Strategy> strategies_with_threads() {
  return {MirroredStrategy({"CPU:0", "CPU:1"}),
          CentralStorageStrategy({.compute_devices = {"CPU:0", "CPU:1"}})};
}

// In the child. 0 if it is refused as what the parent has made.
int status_of_use(const std::function<void()>& use) {
  const std::string text = testing::error_text<FailedPrecondition>(use);
  if (text.find("made before fork") != std::string::npos) return 0;
  std::fprintf(stderr, "[child] %s\n", text.c_str());
  return 1;
}

double sum_of_run(const Strategy& strategy) {
  const auto out = strategy.run([] { return scalar(1); });
  return strategy.reduce(ReduceOp::kSum, out).item<double>();
}

TEST(StrategyFork, RunSaysSoInTheChild) {
  for (const Strategy& strategy : strategies_with_threads()) {
    const auto scope = strategy.scope();
    const Variable v(scalar(1));
    EXPECT_EQ(sum_of_run(strategy), 2);
    for (int once_more = 0; once_more < 2; ++once_more) {
      EXPECT_EQ(status_of_child([&] {
                  return status_of_use([&] { sum_of_run(strategy); }) +
                         status_of_use([&] { strategy.run([&] { v.assign_add(1); }); });
                }),
                0);
    }
    // What needs no thread works; and so does the parent.
    EXPECT_EQ(status_of_child([&] {
                v.assign(5);
                return v.value().item<float>() == 5 ? 0 : 1;
              }),
              0);
    EXPECT_EQ(sum_of_run(strategy), 2);
    EXPECT_EQ(v.value().item<float>(), 1);
  }
}

TEST(StrategyFork, AStrategyThatNeverRanSaysSo) {
  for (const Strategy& strategy : strategies_with_threads()) {
    EXPECT_EQ(
        status_of_child([&] { return status_of_use([&] { strategy.run([] { return 1; }); }); }), 0);
  }
}

// As a program does that ends after main.
TEST(StrategyFork, TheLastHandleEndsInTheChild) {
  std::vector<Strategy> all = strategies_with_threads();
  for (Strategy& made : all) {
    auto last = std::make_optional<Strategy>(std::move(made));
    EXPECT_EQ(sum_of_run(*last), 2);
    auto it = std::make_optional(
        last->distribute_dataset(Dataset::range(100).batch(2).prefetch(2)).make_iterator());
    ASSERT_TRUE(it->next().has_value());
    EXPECT_EQ(status_of_child([&] {
                it.reset();
                last.reset();
                return 0;
              }),
              0);
  }
}

TEST(StrategyFork, ADistributedIteratorSaysSo) {
  const MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const DistributedDataset dist =
      strategy.distribute_dataset(Dataset::range(8).batch(4).prefetch(1));
  DistributedIterator it = dist.make_iterator();
  ASSERT_TRUE(it.next().has_value());
  EXPECT_EQ(status_of_child([&] {
              return status_of_use([&] { it.next(); }) + status_of_use([&] { it.save(); }) +
                     status_of_use([&] { it.cancel(); });
            }),
            0);
  const auto second = it.next();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(to_vector<int64_t>((*second)[1].tensor()), (std::vector<int64_t>{6, 7}));
  EXPECT_FALSE(it.next().has_value());
}

TEST(StrategyFork, TheChildIteratesAnew) {
  if (!kCanLimitChildren) GTEST_SKIP() << "needs threads after fork";
  const MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const DistributedDataset dist =
      strategy.distribute_dataset(Dataset::range(8).batch(4).prefetch(1));
  for ([[maybe_unused]] const auto& step : dist) {
  }
  EXPECT_EQ(status_of_child([&] {
              int steps = 0;
              for ([[maybe_unused]] const auto& step : dist) ++steps;
              const MirroredStrategy own({"CPU:0", "CPU:1"});
              return steps == 2 && sum_of_run(own) == 2 ? 0 : 1;
            }),
            0);
}

TEST(StrategyFork, ACacheThatIsDistributedSaysSo) {
  const MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const DistributedDataset dist =
      strategy.distribute_dataset(Dataset::range(8).cache().batch(4).prefetch(1));
  for (const bool is_full : {false, true}) {
    DistributedIterator it = dist.make_iterator();
    if (is_full) {
      while (it.next()) {
      }
    }
    EXPECT_EQ(status_of_child([&] {
                return status_of_use([&] {
                  for ([[maybe_unused]] const auto& step : dist) {
                  }
                });
              }),
              0)
        << is_full;
  }
}

}  // namespace
}  // namespace cohort
