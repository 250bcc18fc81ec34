// SPDX-License-Identifier: Apache-2.0
//
// Jobs of real processes with parameter servers, whose workers and servers are killed. K09 and K10
// of the conformance list.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/all_faults.h"
#include "tests/parameter_servers/job.h"

namespace {

using cohort::testing::all_faults;
using cohort::testing::as_promised;
using cohort::testing::comes_to_stop;
using cohort::testing::Job;
using cohort::testing::killing;
using cohort::testing::number_behind;
using cohort::testing::Process;

constexpr int kScheduled = 2000;
constexpr int kFew = 300;
// For so long no function ends at most because a worker dies (C1).
constexpr std::chrono::seconds kLongestWait{5};
// So soon a server that has died is found out: twice what C3 asks for, which took 2.0 s in join()
// and 2.3 s in schedule() on a busy machine.
constexpr std::chrono::seconds kFoundOut{4};

void expect_all(const Process& chief, int scheduled) {
  const std::string text = chief.text();
  EXPECT_EQ(number_behind(text, "ended: "), scheduled) << text;
  EXPECT_GE(number_behind(text, "ready, "), scheduled) << text;
  const int longest = number_behind(text, "longest wait: ");
  EXPECT_GE(longest, 0) << text;
  EXPECT_LT(std::chrono::milliseconds(longest), as_promised(kLongestWait)) << text;
}

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
  expect_all(*chief, kScheduled);
  EXPECT_EQ(steady->wait(), 0) << "the chief ends the job: " << steady->text();
  EXPECT_EQ(again->wait(), 0) << again->text();
  EXPECT_EQ(ps->wait(), 0) << ps->text();
}

INSTANTIATE_TEST_SUITE_P(Places, KilledWorker,
                         ::testing::Values("worker.received", "worker.make_resource",
                                           "worker.before_function#3", "worker.after_function#3",
                                           "worker.before_answer#2", "worker.answered#2"));

// Here the chief stands somewhere when a worker dies: before it schedules, and when it reads the
// results.
class KilledWorkerOf : public ::testing::TestWithParam<const char*> {};

TEST_P(KilledWorkerOf, AChiefThatIsElsewhere) {  // K09
  const Job job({PROGRAM, std::to_string(kFew)});
  const auto ps = job.start("ps", 0);
  const auto steady = job.start("worker", 0);
  const auto killed = job.start("worker", 1);
  const auto chief = job.start("chief", 0, std::string(GetParam()) + "=stop");
  ASSERT_TRUE(comes_to_stop(*chief)) << chief->text();
  killed->signal(SIGKILL);
  EXPECT_EQ(killed->wait(), 128 + SIGKILL);
  chief->signal(SIGCONT);
  EXPECT_EQ(chief->wait(), 0) << chief->text();
  expect_all(*chief, kFew);
}

std::vector<const char*> places_of_a_chief() {
  if (all_faults()) return {"program.idle", "program.fetching"};
  return {"program.idle"};
}
INSTANTIATE_TEST_SUITE_P(Places, KilledWorkerOf, ::testing::ValuesIn(places_of_a_chief()));

// By SIGKILL, or by SIGTERM, with which a machine that is to go asks a worker to leave.
class WorkerThatEnds : public ::testing::TestWithParam<int> {};

TEST_P(WorkerThatEnds, LeavesItsFunctionsToOthers) {  // K09
  const Job job({PROGRAM, std::to_string(kFew)});
  const auto ps = job.start("ps", 0);
  const auto steady = job.start("worker", 0, "worker.before_function=stop#3");
  const auto ends = job.start("worker", 1, "worker.before_function=stop#3");
  const auto chief = job.start("chief", 0);
  ASSERT_TRUE(comes_to_stop(*steady)) << steady->text();
  ASSERT_TRUE(comes_to_stop(*ends)) << ends->text();
  ASSERT_TRUE(chief->wait_for("scheduled")) << chief->text();  // and cannot be behind join()
  ends->signal(GetParam());
  ends->signal(SIGCONT);
  EXPECT_EQ(ends->wait(), 128 + GetParam()) << ends->text();
  steady->signal(SIGCONT);
  EXPECT_EQ(chief->wait(), 0) << chief->text();
  expect_all(*chief, kFew);
}

std::vector<int> ends_of_a_worker() {
  if (all_faults()) return {SIGTERM, SIGKILL};
  return {SIGTERM};
}
INSTANTIATE_TEST_SUITE_P(Signals, WorkerThatEnds, ::testing::ValuesIn(ends_of_a_worker()));

class KilledServer : public ::testing::TestWithParam<const char*> {};

TEST_P(KilledServer, IsNamedByTheChief) {  // K10, C3
  const Job job({PROGRAM, std::to_string(kScheduled), GetParam()});
  const auto ps = job.start("ps", 0);
  const auto first = job.start("worker", 0, "worker.before_function=stop#100");
  const auto second = job.start("worker", 1, "worker.before_function=stop#100");
  const auto chief = job.start("chief", 0);
  ASSERT_TRUE(chief->wait_for("scheduled")) << chief->text();  // and cannot end: its workers stop
  ps->signal(SIGKILL);
  EXPECT_TRUE(chief->wait_for("thrown UNAVAILABLE", as_promised(kFoundOut))) << chief->text();
  EXPECT_EQ(chief->wait(), 1) << chief->text();
  EXPECT_NE(chief->text().find("ps 0"), std::string::npos) << chief->text();
}

std::vector<const char*> calls_of_a_chief() {
  if (all_faults()) return {"join", "fetch", "schedule"};
  return {"join", "fetch"};
}
INSTANTIATE_TEST_SUITE_P(Calls, KilledServer, ::testing::ValuesIn(calls_of_a_chief()));

TEST(Cohortrun, RunsAJobWithParameterServers) {
  Process job({COHORTRUN, "--ps", "2", "--workers", "2", "--chief", "--", PROGRAM, "200"});
  EXPECT_EQ(job.wait(), 0) << job.text();
  EXPECT_NE(job.text().find("ended: 200 ready, 200 added"), std::string::npos) << job.text();
}

}  // namespace
