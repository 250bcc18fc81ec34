// SPDX-License-Identifier: Apache-2.0
//
// Who may begin a step, by the order of what happens.
#include "cohort/coordinator/internal/step_clocks.h"

#include <gtest/gtest.h>

namespace cohort::internal::coordinator {
namespace {

void make_step(StepClocks& clocks, int worker) {
  ASSERT_TRUE(clocks.may_begin(worker));
  clocks.begin(worker, /*is_step=*/true);
  clocks.end(worker, /*is_step=*/true, /*has_run=*/true);
}

TEST(StepClocks, WithoutABoundNobodyWaits) {
  StepClocks clocks(std::nullopt);
  clocks.join(0);
  clocks.join(1);
  for (int i = 0; i < 100; ++i) make_step(clocks, 0);
  EXPECT_TRUE(clocks.may_begin(0));
}

TEST(StepClocks, ZeroIsBulkSynchronous) {
  StepClocks clocks(0);
  for (int worker : {0, 1, 2}) clocks.join(worker);
  for (int round = 0; round < 3; ++round) {
    make_step(clocks, 0);
    EXPECT_FALSE(clocks.may_begin(0));
    clocks.begin(1, true);
    EXPECT_FALSE(clocks.may_begin(1)) << "a second one at once would be ahead of worker 2";
    make_step(clocks, 2);
    EXPECT_FALSE(clocks.may_begin(0)) << "worker 1 has not ended its own";
    clocks.end(1, true, true);
    EXPECT_TRUE(clocks.may_begin(0));
  }
}

TEST(StepClocks, TheFastestIsTheBoundAheadOfTheSlowest) {
  StepClocks clocks(2);
  for (int worker : {0, 1}) clocks.join(worker);
  clocks.begin(1, true);
  for (int i = 0; i < 3; ++i) make_step(clocks, 0);
  EXPECT_FALSE(clocks.may_begin(0));
  clocks.end(1, true, true);
  make_step(clocks, 0);
  EXPECT_FALSE(clocks.may_begin(0));
}

TEST(StepClocks, WhatIsHandedBackWasNoStep) {
  StepClocks clocks(0);
  for (int worker : {0, 1}) clocks.join(worker);
  make_step(clocks, 0);
  clocks.begin(1, true);
  clocks.end(1, true, /*has_run=*/false);
  EXPECT_FALSE(clocks.may_begin(0));
  EXPECT_TRUE(clocks.may_begin(1));
}

TEST(StepClocks, WhoIsLostIsNotWaitedForAndComesBackWithTheSlowest) {
  StepClocks clocks(0);
  for (int worker : {0, 1, 2}) clocks.join(worker);
  make_step(clocks, 0);
  make_step(clocks, 2);
  clocks.begin(1, true);
  EXPECT_FALSE(clocks.may_begin(0));
  clocks.leave(1);
  make_step(clocks, 0);
  make_step(clocks, 2);
  clocks.end(1, true, true);  // what it still says is not heard
  clocks.join(1);
  make_step(clocks, 0);
  EXPECT_FALSE(clocks.may_begin(0)) << "it is waited for again";
  make_step(clocks, 1);
  EXPECT_FALSE(clocks.may_begin(1)) << "it has begun with the others, not behind them";
}

// Else who comes meanwhile might make any number of steps while the last one of them waits.
TEST(StepClocks, AloneAWorkerHasAsManyUnderWayAsTheBoundAllows) {
  StepClocks clocks(1);
  for (int worker : {0, 1}) clocks.join(worker);
  clocks.leave(1);
  for (int i = 0; i < 9; ++i) make_step(clocks, 0);
  clocks.begin(0, true);
  EXPECT_TRUE(clocks.may_begin(0));
  clocks.begin(0, true);
  EXPECT_FALSE(clocks.may_begin(0));
}

TEST(StepClocks, WhoEvaluatesIsNotWaitedForAndIsNotBehindThen) {
  StepClocks clocks(0);
  for (int worker : {0, 1}) clocks.join(worker);
  clocks.begin(1, /*is_step=*/false);
  for (int i = 0; i < 5; ++i) make_step(clocks, 0);
  clocks.join(2);  // begins with worker 0, not with worker 1's clock of before
  make_step(clocks, 0);
  EXPECT_FALSE(clocks.may_begin(0));
  make_step(clocks, 2);
  clocks.end(1, /*is_step=*/false, true);
  make_step(clocks, 1);
  EXPECT_FALSE(clocks.may_begin(1)) << "it has 7 steps now, as the others will have";
  make_step(clocks, 0);
  make_step(clocks, 2);
  make_step(clocks, 1);
}

TEST(StepClocks, AStepBehindAnEvaluationOfOneMessageIsWaitedFor) {
  StepClocks clocks(0);
  for (int worker : {0, 1}) clocks.join(worker);
  make_step(clocks, 0);
  clocks.begin(1, /*is_step=*/false);
  clocks.begin(1, /*is_step=*/true);  // from worker 0's clock on
  make_step(clocks, 0);
  EXPECT_FALSE(clocks.may_begin(0));
  clocks.end(1, true, true);
  clocks.end(1, false, true);
  EXPECT_TRUE(clocks.may_begin(0));
}

TEST(StepClocks, WhereNothingRunsAllAreEqual) {
  StepClocks clocks(0);
  for (int worker : {0, 1}) clocks.join(worker);
  make_step(clocks, 0);
  EXPECT_FALSE(clocks.may_begin(0));
  clocks.align();
  make_step(clocks, 0);
}

}  // namespace
}  // namespace cohort::internal::coordinator
