// SPDX-License-Identifier: Apache-2.0
//
// Several clients push to servers with copies, and read, while a server is killed or stands still:
// a single register would have told them the same.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "cohort/cluster/store/store_server.h"
#include "tests/parameter_servers/histories.h"
#include "tests/parameter_servers/job.h"

namespace {

using cohort::internal::cluster::StoreServer;
using cohort::testing::histories_in;
using cohort::testing::Job;
using cohort::testing::killing;
using cohort::testing::Process;
using cohort::testing::PushHistory;

constexpr std::size_t kPushesOfOne = 300;

class Histories : public ::testing::Test {
 protected:
  const StoreServer store_{cohort::internal::cluster::StoreServerOptions{}};
  const std::vector<std::string> environment_ = {
      "COHORT_STORE=" + store_.address(), "COHORT_LEASE_MS=3000", "COHORT_COORDINATOR_LEASE=60"};
  Job job(const std::string& bug = "none") const {
    return Job({HISTORY_PROGRAM, bug}, 2, environment_);
  }

  static void expect_a_register(const Process& chief) {
    for (const PushHistory& each : histories_in(chief.text(), 2)) {
      EXPECT_EQ(each.pushes(), kPushesOfOne);
      EXPECT_GT(each.reads(), kPushesOfOne);
      EXPECT_EQ(each.first_violation(), "");
    }
  }
};

class HistoriesOfDeaths : public Histories, public ::testing::WithParamInterface<const char*> {};

TEST_P(HistoriesOfDeaths, AreThoseOfARegister) {
  const Job job = this->job();
  const auto killed = job.start("ps", 0, killing(GetParam()));
  const auto steady = job.start("ps", 1);
  const auto first = job.start("worker", 0);
  const auto second = job.start("worker", 1);
  const auto chief = job.start("chief", 0);
  EXPECT_EQ(killed->wait(), 128 + SIGKILL) << killed->text();
  EXPECT_EQ(chief->wait(), 0) << chief->text() << steady->text();
  expect_a_register(*chief);
}

// An answer is on its way to its client; an update on its way to the backup; a backup's
// acknowledgement to the primary.
INSTANTIATE_TEST_SUITE_P(Places, HistoriesOfDeaths,
                         ::testing::Values("ps.before_answer#150", "ps.apply#200",
                                           "ps.acknowledges#150"));

// Who stood still has a state that others have gone beyond, and does not know it yet.
TEST_F(Histories, AreThoseOfARegisterWhenAServerStandsStill) {
  const Job job = this->job();
  const auto zero = job.start("ps", 0);
  const auto one = job.start("ps", 1);
  const auto first = job.start("worker", 0);
  const auto second = job.start("worker", 1);
  const auto chief = job.start("chief", 0);
  ASSERT_TRUE(chief->wait_for("ended: 10\n")) << chief->text();
  zero->signal(SIGSTOP);
  EXPECT_TRUE(chief->wait_for("ended: 30\n")) << chief->text();
  zero->signal(SIGCONT);
  EXPECT_EQ(chief->wait(), 0) << chief->text() << one->text();
  expect_a_register(*chief);
}

class HistoriesOfBugs : public Histories, public ::testing::WithParamInterface<const char*> {};

TEST_P(HistoriesOfBugs, AreFound) {
  const Job job = this->job(GetParam());
  const auto zero = job.start("ps", 0);
  const auto one = job.start("ps", 1);
  const auto first = job.start("worker", 0);
  const auto second = job.start("worker", 1);
  const auto chief = job.start("chief", 0);
  EXPECT_EQ(chief->wait(), 0) << chief->text();
  for (const PushHistory& each : histories_in(chief->text(), 2)) {
    EXPECT_NE(each.first_violation(), "");
  }
}
INSTANTIATE_TEST_SUITE_P(Clients, HistoriesOfBugs, ::testing::Values("early", "stale", "twice"));

PushHistory of_two_pushes() {
  PushHistory out;
  out.push({.begun = 0, .ended = 10, .number = 0});
  out.push({.begun = 5, .ended = 15, .number = 1});
  return out;
}

TEST(PushHistories, MayShowWhatOverlapsInAnyOrder) {
  PushHistory history = of_two_pushes();
  history.read({.begun = 3, .ended = 6, .seen = "00"});
  history.read({.begun = 6, .ended = 7, .seen = "01"});
  history.read({.begun = 6, .ended = 12, .seen = "01"});
  history.read({.begun = 11, .ended = 12, .seen = "11"});
  EXPECT_EQ(history.first_violation(), "");
}

TEST(PushHistories, AreWrong) {
  const auto with = [](std::vector<PushHistory::Read> reads) {
    PushHistory history = of_two_pushes();
    history.push({.begun = 20, .ended = 25, .number = 2});
    for (auto& each : reads) history.read(std::move(each));
    return history.first_violation();
  };
  EXPECT_NE(with({{30, 31, "121"}}).find("counts twice"), std::string::npos);
  EXPECT_NE(with({{11, 12, "010"}}).find("not got push 0"), std::string::npos);
  EXPECT_NE(with({{16, 17, "111"}}).find("early"), std::string::npos);
  EXPECT_NE(with({{14, 22, "101"}}).find("a later push"), std::string::npos);
  EXPECT_NE(with({{6, 7, "010"}, {6, 7, "100"}}).find("disagree"), std::string::npos);
  EXPECT_NE(with({{6, 7, "100"}, {8, 9, "000"}}).find("lost a push"), std::string::npos);
  EXPECT_EQ(with({{6, 9, "100"}, {8, 9, "000"}}), "");
}

}  // namespace
