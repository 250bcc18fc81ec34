// SPDX-License-Identifier: Apache-2.0
//
// Workers that lose their machine save after the same run and end; started again they go on. The
// processes of tests/multi_worker get real signals.
#include "cohort/strategy/preemption_checkpoint_handler.h"

#include <gtest/gtest.h>

#include <csignal>

#include "cohort/checkpoint/test_objects.h"
#include "cohort/strategy/strategies.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;
using testing::run_with_deadline;
using testing::Workers;

struct Ended {};

struct PreemptionHandler : testing::FolderTest {
  /// Counts to 10 in a variable, by runs; `at` sees each before it.
  int64_t count(const Strategy& strategy, TerminationConfig config,
                const std::function<void(int64_t)>& at) {
    const auto scope = strategy.scope();
    const Variable total(scalar(0.0), {.aggregation = Aggregation::kMean});
    PreemptionCheckpointHandler handler(nullptr, Checkpoint({{"total", total}}), path("x"),
                                        std::move(config));
    EXPECT_EQ(total.value().item<double>(), static_cast<double>(handler.total_run_calls()));
    restored = handler.total_run_calls();
    while (handler.total_run_calls() < 10) {
      at(handler.total_run_calls());
      handler.run([&] { strategy.run([&] { total.assign_add(scalar(1.0)); }); });
    }
    return total.value().item<int64_t>();
  }
  std::atomic<int64_t> restored = -1;
};

TEST_F(PreemptionHandler, SigtermSavesAheadOfTheNextRunAndEnds) {
  const Strategy strategy = MirroredStrategy();
  const TerminationConfig ends{.exit_fn = [] { throw Ended(); }};
  const auto signal_at_4 = [](int64_t run) {
    if (run == 4) raise(SIGTERM);
  };
  EXPECT_THROW(count(strategy, ends, signal_at_4), Ended);
  const auto never = [](int64_t) {};
  EXPECT_EQ(count(strategy, ends, never), 10);
  EXPECT_EQ(restored, 4) << "no run lost, none twice";
  expect_error<InvalidArgument>({"checkpoint_dir"}, [&] {
    const Variable v(scalar(0.0));
    PreemptionCheckpointHandler handler(nullptr, Checkpoint({{"v", v}}), "");
  });
}

TEST_F(PreemptionHandler, OneThatWasMovedFromSaysSo) {
  const Variable v(scalar(0.0));
  PreemptionCheckpointHandler moved(nullptr, Checkpoint({{"v", v}}), path("moved"));
  const PreemptionCheckpointHandler elsewhere = std::move(moved);
  EXPECT_EQ(elsewhere.total_run_calls(), 0);
  const auto expect_empty = [](const std::function<void()>& use) {
    expect_error<FailedPrecondition>(
        {"[preemption_checkpoint_handler.", "empty handle", "make it anew"}, use);
  };
  // NOLINTBEGIN(bugprone-use-after-move): what this is about.
  expect_empty([&] { moved.total_run_calls(); });
  expect_empty([&] { moved.save_checkpoint_if_preempted(); });
  expect_empty([&] { moved.run([] {}); });
  // NOLINTEND(bugprone-use-after-move)
}

// One worker's watcher says so; all save the same run. What the manager saves otherwise has the
// count, too.
TEST_F(PreemptionHandler, AllWorkersAgreeOnTheRun) {
  run_with_deadline(std::chrono::seconds(90), [&] {
    std::atomic<bool> is_near{false};
    std::array<std::atomic<int64_t>, 3> ended = {};
    Workers(3, 1).each([&](const Strategy& strategy) {
      const int worker = strategy.extended().layout().worker();
      TerminationConfig config{
          .termination_watcher_fn = [&, worker] { return worker == 1 && is_near.load(); },
          .exit_fn = [] { throw Ended(); }};
      const auto scope = strategy.scope();
      const Variable total(scalar(0.0), {.aggregation = Aggregation::kMean});
      CheckpointManager manager(Checkpoint({{"total", total}}), path("x"));
      PreemptionCheckpointHandler handler(nullptr, manager, config);
      manager.save();
      is_near = true;  // the watcher is asked within a second
      try {
        for (;;) {
          handler.run([&] { strategy.run([&] { total.assign_add(scalar(1.0)); }); });
        }
      } catch (const Ended&) {
      }
      ended[static_cast<std::size_t>(worker)] = handler.total_run_calls();
      EXPECT_EQ(total.value().item<int64_t>(), handler.total_run_calls());
    });
    EXPECT_EQ(ended[0], ended[1]);
    EXPECT_EQ(ended[0], ended[2]);
    EXPECT_EQ(names(), std::vector<std::string>{"x"});
    EXPECT_TRUE(std::filesystem::exists(path("x/ckpt-2")));
  });
}

TEST_F(PreemptionHandler, AGracePeriodLeavesTimeForMoreRuns) {
  const Strategy strategy = MirroredStrategy();
  int saves = 0, runs_after = 0;
  TerminationConfig config{.exit_fn = [] { throw Ended(); },
                           .grace_period = std::chrono::milliseconds(300),
                           .save_fn = [&] { ++saves; }};
  const auto scope = strategy.scope();
  const Variable total(scalar(0.0));
  PreemptionCheckpointHandler handler(nullptr, Checkpoint({{"total", total}}), path("x"), config);
  handler.run([] {});
  raise(SIGTERM);
  EXPECT_THROW(for (;;) handler.run([&] { ++runs_after; }), Ended);
  EXPECT_EQ(saves, 2);
  EXPECT_GT(runs_after, 0);
  EXPECT_TRUE(names().empty()) << "save_fn saves instead";
}

TEST_F(PreemptionHandler, ReturnsWhatTheRunReturns) {
  const Variable v(scalar(0.0));
  PreemptionCheckpointHandler handler(nullptr, Checkpoint({{"v", v}}), path("x"));
  EXPECT_EQ(handler.run([](int a, int b) { return a + b; }, 2, 3), 5);
  EXPECT_EQ(handler.total_run_calls(), 1);
}

}  // namespace
}  // namespace cohort
