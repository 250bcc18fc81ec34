// SPDX-License-Identifier: Apache-2.0
//
// Parameter servers with copies, in real processes of which one is killed: nothing that was
// acknowledged is lost, and nothing is done twice.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "cohort/cluster/store/store_server.h"
#include "tests/all_faults.h"
#include "tests/parameter_servers/job.h"

namespace {

using cohort::internal::cluster::StoreServer;
using cohort::testing::comes_to_stop;
using cohort::testing::first_to_stop;
using cohort::testing::Job;
using cohort::testing::killing;
using cohort::testing::Process;

constexpr int kUpdates = 1000;
constexpr int kFewUpdates = 300;
// So many that a server has come back before the last one.
constexpr int kManyUpdates = 4000;

class ReplicatedServers : public ::testing::TestWithParam<const char*> {
 protected:
  const StoreServer store_{cohort::internal::cluster::StoreServerOptions{}};
  const std::vector<std::string> environment_ = {
      "COHORT_STORE=" + store_.address(), "COHORT_LEASE_MS=3000", "COHORT_COORDINATOR_LEASE=60"};
  const Job job_{{PROGRAM, std::to_string(kUpdates), "2"}, 2, environment_};

  static void expect_all(const Process& chief, int updates = kUpdates) {
    const std::string text = chief.text();
    EXPECT_NE(text.find("ended: " + std::to_string(updates) + " added"), std::string::npos) << text;
    EXPECT_NE(text.find("wide " + std::to_string(updates) + " to " + std::to_string(updates)),
              std::string::npos)
        << text;
    EXPECT_NE(
        text.find("table " + std::to_string(updates / 10) + " to " + std::to_string(updates / 10)),
        std::string::npos)
        << text;
  }
};

// Where it dies: an update is applied by all and its client not told; or the backup is about to
// acknowledge one.
TEST_P(ReplicatedServers, LoseNothingWhenOneIsKilled) {
  const auto killed = job_.start("ps", 0, killing(GetParam()));
  const auto steady = job_.start("ps", 1);
  const auto first = job_.start("worker", 0);
  const auto second = job_.start("worker", 1);
  const auto chief = job_.start("chief", 0);
  EXPECT_EQ(killed->wait(), 128 + SIGKILL) << killed->text();
  EXPECT_EQ(chief->wait(), 0) << chief->text() << steady->text();
  expect_all(*chief);
  EXPECT_EQ(steady->wait(), 0) << steady->text();
}

INSTANTIATE_TEST_SUITE_P(Places, ReplicatedServers,
                         ::testing::Values("ps.before_answer#50", "ps.acknowledges#100"));

// Four times a group is whole on ps 1: its own, the one that it inherits with its dead primary, and
// both again. Who comes back gets a snapshot and the log, and outlives the one from which it has
// them.
TEST_F(ReplicatedServers, TakeBackWhoWasKilled) {
  const Job job({PROGRAM, std::to_string(kManyUpdates), "2"}, 2, environment_);
  auto zero = job.start("ps", 0, killing("ps.before_answer#50"));
  const auto one = job.start("ps", 1, killing("ps.whole#4"));
  const auto first = job.start("worker", 0);
  const auto second = job.start("worker", 1);
  const auto chief = job.start("chief", 0);
  EXPECT_EQ(zero->wait(), 128 + SIGKILL) << zero->text();
  zero = job.start("ps", 0);
  EXPECT_EQ(one->wait(), 128 + SIGKILL) << one->text();
  EXPECT_EQ(chief->wait(), 0) << chief->text() << zero->text();
  expect_all(*chief, kManyUpdates);
  EXPECT_EQ(zero->wait(), 0) << zero->text();
}

// Of three copies: who has just been promoted dies, too, and the third one leads. A machine that
// stands still for a lease promotes others.
TEST_F(ReplicatedServers, LoseNothingWhenThePromotedOneIsKilled) {
  if (!cohort::testing::all_faults()) GTEST_SKIP() << "make test-faults runs it";
  const Job job({PROGRAM, std::to_string(kFewUpdates), "3"}, 3, environment_);
  const auto killed = job.start("ps", 0, killing("ps.before_answer#50"));
  const auto one = job.start("ps", 1, "ps.promoted=stop");
  const auto two = job.start("ps", 2, "ps.promoted=stop");
  const auto first = job.start("worker", 0);
  const auto second = job.start("worker", 1);
  const auto chief = job.start("chief", 0);
  EXPECT_EQ(killed->wait(), 128 + SIGKILL) << killed->text();
  Process* const promoted = first_to_stop({one.get(), two.get()});
  ASSERT_NE(promoted, nullptr) << one->text() << two->text();
  Process& last = promoted == one.get() ? *two : *one;
  promoted->signal(SIGKILL);
  ASSERT_TRUE(comes_to_stop(last)) << last.text();
  last.signal(SIGCONT);
  EXPECT_EQ(chief->wait(), 0) << chief->text() << last.text();
  expect_all(*chief, kFewUpdates);
}

TEST_F(ReplicatedServers, SayWhichAreLost) {
  const auto zero = job_.start("ps", 0);
  const auto one = job_.start("ps", 1);
  const auto first = job_.start("worker", 0, "worker.before_function=stop#100");
  const auto second = job_.start("worker", 1, "worker.before_function=stop#100");
  const auto chief = job_.start("chief", 0);
  ASSERT_TRUE(chief->wait_for("scheduled")) << chief->text();
  zero->signal(SIGKILL);
  one->signal(SIGKILL);
  EXPECT_EQ(chief->wait(), 1) << chief->text();
  for (const char* word : {"thrown DATA_LOSS", "ps 0", "ps 1", "checkpoint"}) {  // C4
    EXPECT_NE(chief->text().find(word), std::string::npos) << word << " in\n" << chief->text();
  }
}

}  // namespace
