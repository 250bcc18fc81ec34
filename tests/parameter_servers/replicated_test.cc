// SPDX-License-Identifier: Apache-2.0
//
// Parameter servers with copies, in real processes of which one is killed: nothing that was
// acknowledged is lost, and nothing is done twice.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>

#include "cohort/cluster/store/store_server.h"
#include "tests/parameter_servers/job.h"

namespace {

using cohort::internal::StoreServer;
using cohort::testing::Job;
using cohort::testing::killing;
using cohort::testing::Process;

constexpr int kUpdates = 1000;

class ReplicatedServers : public ::testing::TestWithParam<const char*> {
 protected:
  const StoreServer store_{cohort::internal::StoreServerOptions{}};
  const Job job_{
      {PROGRAM, std::to_string(kUpdates), "2"},
      2,
      {"COHORT_STORE=" + store_.address(), "COHORT_LEASE_MS=1000", "COHORT_COORDINATOR_LEASE=60"}};

  static void expect_all(const Process& chief) {
    const std::string text = chief.text();
    EXPECT_NE(text.find("ended: " + std::to_string(kUpdates) + " added"), std::string::npos)
        << text;
    EXPECT_NE(text.find("wide " + std::to_string(kUpdates) + " to " + std::to_string(kUpdates)),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("table " + std::to_string(kUpdates / 10) + " to " +
                        std::to_string(kUpdates / 10)),
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
  EXPECT_NE(chief->text().find("checkpoint"), std::string::npos) << chief->text();
}

}  // namespace
