// SPDX-License-Identifier: Apache-2.0
//
// fit and evaluate in jobs of real processes, whose workers are killed.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "cohort/base/strings.h"
#include "tests/parameter_servers/job.h"

namespace {

using cohort::testing::Job;
using cohort::testing::killing;
using cohort::testing::number_behind;

// Each of these is where a worker dies: ahead of the model, in steps with the chief's batches, with
// its own, between a step and its answer, and in a shard of the evaluation.
class KilledInFit : public ::testing::TestWithParam<const char*> {};

void expect_counted_once(const std::vector<std::string>& program, const char* place) {
  const Job job(program);
  const auto ps = job.start("ps", 0);
  const auto steady = job.start("worker", 0);
  const auto killed = job.start("worker", 1, killing(place));
  const auto chief = job.start("chief", 0);
  EXPECT_EQ(killed->wait(), 128 + SIGKILL) << killed->text();
  const auto again = job.start("worker", 1);  // perhaps when all is over, and nobody tells it so
  EXPECT_EQ(chief->wait(), 0) << chief->text();
  constexpr int kSum = 640 * 639 / 2;
  EXPECT_EQ(number_behind(chief->text(), "sent: "), kSum) << chief->text();
  EXPECT_EQ(number_behind(chief->text(), cohort::str_cat("sent: ", kSum, " and ")), kSum)
      << chief->text();
  EXPECT_EQ(number_behind(chief->text(), "own: "), 800) << chief->text();
  EXPECT_EQ(number_behind(chief->text(), "evaluated: "), kSum) << chief->text();
  EXPECT_GE(number_behind(chief->text(), "steps: "), 2 * 80 + 100) << chief->text();
  EXPECT_EQ(steady->wait(), 0) << steady->text();
  EXPECT_EQ(ps->wait(), 0) << ps->text();
}

TEST_P(KilledInFit, EveryStepAndShardIsCountedOnce) {
  expect_counted_once({FIT_PROGRAM}, GetParam());
}

// Where each round of steps waits for both workers, one that dies, and comes back, does not stop
// it.
TEST(BoundedFit, AWorkerThatDiesIsNotWaitedFor) {
  expect_counted_once({FIT_PROGRAM, "0"}, "worker.sent_step#5");
  expect_counted_once({FIT_PROGRAM, "1"}, "worker.test_step#4");
}

INSTANTIATE_TEST_SUITE_P(Places, KilledInFit,
                         ::testing::Values("worker.make_resource", "worker.sent_step#5",
                                           "worker.before_answer#3", "worker.own_step#5",
                                           "worker.test_step#4"));

}  // namespace
