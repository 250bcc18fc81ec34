// SPDX-License-Identifier: Apache-2.0
//
// Jobs of real processes whose functions count once, while workers, servers and the chief are
// killed in the middle of them: before and behind what is prepared, acknowledged and done.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <random>
#include <string>

#include "cohort/cluster/store/store_server.h"
#include "tests/parameter_servers/job.h"

namespace {

using cohort::str_cat;
using cohort::internal::cluster::StoreServer;
using cohort::testing::Job;
using cohort::testing::killing;
using cohort::testing::number_behind;

// Each row of the table is changed by a tenth of them.
constexpr int kCount = 200;

void expect_exact(const std::string& text) {
  for (const std::string& each :
       {std::string("thrown"), std::string("refused, left at 1"),
        str_cat("wide ", kCount, " to ", kCount, "\n"),
        str_cat("table ", kCount / 10, " to ", kCount / 10, "\n"),
        str_cat("read: ", kCount, ", each row once"), str_cat("steps: ", kCount, ", weight right"),
        str_cat("ended: ", kCount, " added")}) {
    EXPECT_NE(text.find(each), std::string::npos) << "no \"" << each << "\" in\n" << text;
  }
}

Job job_of(const char* how) { return Job({ONCE_PROGRAM, std::to_string(kCount), "1", how}, 2); }

// Where a worker dies: before its function, with some of its changes prepared on some servers, with
// all of them, before and behind the answer.
class ExactlyOnce : public ::testing::TestWithParam<const char*> {};

TEST_P(ExactlyOnce, AKilledWorkersChangesCountOnce) {
  const Job job = job_of("once");
  const auto first = job.start("ps", 0);
  const auto second = job.start("ps", 1);
  const auto steady = job.start("worker", 0);
  const auto killed = job.start("worker", 1, killing(GetParam()));
  const auto chief = job.start("chief", 0);
  EXPECT_EQ(killed->wait(), 128 + SIGKILL) << killed->text();
  const auto again =
      job.start("worker", 1, {}, {"COHORT_COORDINATOR_LEASE=20", "COHORT_RESTART_COUNT=1"});
  EXPECT_EQ(chief->wait(), 0) << chief->text();
  expect_exact(chief->text());
}

INSTANTIATE_TEST_SUITE_P(Places, ExactlyOnce,
                         ::testing::Values("worker.before_function#3", "worker.prepares#15",
                                           "worker.prepares#17", "worker.prepares#19",
                                           "worker.after_function#3", "worker.before_answer#4",
                                           "worker.answered#4"));

// Both workers die once, wherever a seed says.
class ExactlyOnceAnywhere : public ::testing::TestWithParam<unsigned> {};

TEST_P(ExactlyOnceAnywhere, KilledWorkersChangesCountOnce) {
  std::mt19937 random(GetParam());
  constexpr std::array kPlaces = {"worker.before_function", "worker.prepares",
                                  "worker.after_function", "worker.before_answer",
                                  "worker.answered"};
  const auto somewhere = [&] {
    const std::string place = kPlaces[random() % kPlaces.size()];
    return killing(str_cat(place, "#", 2 + random() % 30));
  };
  const Job job = job_of("once");
  const auto first = job.start("ps", 0);
  const auto second = job.start("ps", 1);
  const std::string places[] = {somewhere(), somewhere()};
  const auto one = job.start("worker", 0, places[0]);
  const auto two = job.start("worker", 1, places[1]);
  const auto chief = job.start("chief", 0);
  EXPECT_EQ(one->wait(), 128 + SIGKILL) << places[0] << one->text();
  const auto one_again =
      job.start("worker", 0, {}, {"COHORT_COORDINATOR_LEASE=20", "COHORT_RESTART_COUNT=1"});
  EXPECT_EQ(two->wait(), 128 + SIGKILL) << places[1] << two->text();
  const auto two_again =
      job.start("worker", 1, {}, {"COHORT_COORDINATOR_LEASE=20", "COHORT_RESTART_COUNT=1"});
  EXPECT_EQ(chief->wait(), 0) << places[0] << ", " << places[1] << "\n" << chief->text();
  expect_exact(chief->text());
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExactlyOnceAnywhere, ::testing::Range(1U, 9U));

// The same death, and the default: what was done behind the last answer is done again.
TEST(AtLeastOnce, CountsMoreWhereAWorkerIsKilled) {
  const Job job = job_of("often");
  const auto first = job.start("ps", 0);
  const auto second = job.start("ps", 1);
  const auto steady = job.start("worker", 0);
  const auto killed = job.start("worker", 1, killing("worker.after_function#3"));
  const auto chief = job.start("chief", 0);
  EXPECT_EQ(killed->wait(), 128 + SIGKILL) << killed->text();
  EXPECT_EQ(chief->wait(), 0) << chief->text();
  EXPECT_GT(number_behind(chief->text(), "ended: "), kCount) << chief->text();
}

// The next chief begins with new variables, and nothing of what the last one has left counts there.
TEST(ExactlyOnceChief, AKilledChiefLeavesNothing) {
  for (const char* place : {"coordinator.settles#50", "coordinator.settled#50"}) {
    const Job job = job_of("once");
    const auto first = job.start("ps", 0);
    const auto second = job.start("ps", 1);
    const auto steady = job.start("worker", 0);
    const auto other = job.start("worker", 1);
    const auto killed = job.start("chief", 0, killing(place));
    EXPECT_EQ(killed->wait(), 128 + SIGKILL) << killed->text();
    const auto chief = job.start("chief", 0);
    EXPECT_EQ(chief->wait(), 0) << chief->text();
    expect_exact(chief->text());
  }
}

// Without copies a server's death ends the job, also in the middle of what it is to do.
TEST(ExactlyOnceServer, ALostOneIsNamed) {
  for (const char* place : {"ps.prepares#40", "ps.settles#20", "ps.settled#20"}) {
    const Job job = job_of("once");
    const auto killed = job.start("ps", 0, killing(place));
    const auto second = job.start("ps", 1);
    const auto steady = job.start("worker", 0);
    const auto other = job.start("worker", 1);
    const auto chief = job.start("chief", 0);
    EXPECT_EQ(killed->wait(), 128 + SIGKILL) << killed->text();
    EXPECT_EQ(chief->wait(), 1) << chief->text();
    EXPECT_NE(chief->text().find("ps 0"), std::string::npos) << place << chief->text();
    EXPECT_NE(chief->text().find("checkpoint"), std::string::npos) << place << chief->text();
  }
}

// What waits is part of the servers' copies: one server dies with it, and another one takes over.
// A worker dies, too, and who has died comes back.
class ExactlyOnceReplicated : public ::testing::TestWithParam<const char*> {};

TEST_P(ExactlyOnceReplicated, FailoverKeepsWhatIsPrepared) {
  const StoreServer store{cohort::internal::cluster::StoreServerOptions{}};
  const Job job(
      {ONCE_PROGRAM, std::to_string(kCount), "2", "once"}, 2,
      {"COHORT_STORE=" + store.address(), "COHORT_LEASE_MS=3000", "COHORT_COORDINATOR_LEASE=60"});
  auto zero = job.start("ps", 0, killing(GetParam()));
  const auto one = job.start("ps", 1);
  const auto steady = job.start("worker", 0);
  const auto killed = job.start("worker", 1, killing("worker.prepares#41"));
  const auto chief = job.start("chief", 0);
  EXPECT_EQ(killed->wait(), 128 + SIGKILL) << killed->text();
  const auto again = job.start("worker", 1, {}, {"COHORT_RESTART_COUNT=1"});
  EXPECT_EQ(zero->wait(), 128 + SIGKILL) << zero->text();
  zero = job.start("ps", 0);
  EXPECT_EQ(chief->wait(), 0) << chief->text() << one->text();
  expect_exact(chief->text());
}

INSTANTIATE_TEST_SUITE_P(Places, ExactlyOnceReplicated,
                         ::testing::Values("ps.prepares#300", "ps.settles#100", "ps.settled#100",
                                           "ps.before_answer#150", "ps.acknowledges#200"));

}  // namespace
