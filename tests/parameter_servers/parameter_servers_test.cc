// SPDX-License-Identifier: Apache-2.0
//
// Jobs of real processes with parameter servers, whose workers and servers are killed. K09 and K10
// of the conformance list.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "tests/parameter_servers/job.h"

namespace {

using cohort::testing::Job;
using cohort::testing::killing;
using cohort::testing::number_behind;
using cohort::testing::Process;

constexpr int kScheduled = 2000;

// Each of these is where a worker dies: it has the functions, its dataset is made, before and
// behind a function, before and behind the answer.
class KilledWorker : public ::testing::TestWithParam<const char*> {};

TEST_P(KilledWorker, EveryFunctionRunsAtLeastOnce) {  // K09
  const Job job({PROGRAM, std::to_string(kScheduled)});
  const auto ps = job.start("ps", 0);
  const auto steady = job.start("worker", 0);
  const auto killed = job.start("worker", 1, killing(GetParam()));
  const auto chief = job.start("chief", 0);
  EXPECT_EQ(killed->wait(), 128 + SIGKILL) << killed->text();
  // The chief may have ended before it comes.
  const auto again =
      job.start("worker", 1, {}, {"COHORT_COORDINATOR_LEASE=20", "COHORT_RESTART_COUNT=1"});
  EXPECT_EQ(chief->wait(), 0) << chief->text();
  EXPECT_EQ(number_behind(chief->text(), "ended: "), kScheduled) << chief->text();
  EXPECT_GE(number_behind(chief->text(), "ready, "), kScheduled) << chief->text();
  EXPECT_EQ(steady->wait(), 0) << "the chief ends the job: " << steady->text();
  EXPECT_EQ(again->wait(), 0) << again->text();
  EXPECT_EQ(ps->wait(), 0) << ps->text();
}

INSTANTIATE_TEST_SUITE_P(Places, KilledWorker,
                         ::testing::Values("worker.received", "worker.make_resource",
                                           "worker.before_function#3", "worker.after_function#3",
                                           "worker.before_answer#2", "worker.answered#2"));

TEST(KilledServer, IsNamedByTheChief) {  // K10
  const Job job({PROGRAM, std::to_string(kScheduled)});
  const auto ps = job.start("ps", 0);
  const auto first = job.start("worker", 0, "worker.before_function=stop#100");
  const auto second = job.start("worker", 1, "worker.before_function=stop#100");
  const auto chief = job.start("chief", 0);
  ASSERT_TRUE(chief->wait_for("scheduled")) << chief->text();  // and cannot end: its workers stop
  ps->signal(SIGKILL);
  EXPECT_EQ(chief->wait(), 1) << chief->text();
  EXPECT_NE(chief->text().find("ps 0"), std::string::npos) << chief->text();
}

TEST(Cohortrun, RunsAJobWithParameterServers) {
  Process job({COHORTRUN, "--ps", "2", "--workers", "2", "--chief", "--", PROGRAM, "200"});
  EXPECT_EQ(job.wait(), 0) << job.text();
  EXPECT_NE(job.text().find("ended: 200 ready, 200 added"), std::string::npos) << job.text();
}

}  // namespace
