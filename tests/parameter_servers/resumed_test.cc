// SPDX-License-Identifier: Apache-2.0
//
// Jobs of real processes whose chief is killed, and whose program is run again with the same
// journal, while workers and servers live: everything counts once.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>

#include "cohort/cluster/store/store_server.h"
#include "tests/all_faults.h"
#include "tests/parameter_servers/job.h"

namespace {

using cohort::str_cat;
using cohort::internal::cluster::StoreServer;
using cohort::testing::as_promised;
using cohort::testing::comes_to_stop;
using cohort::testing::Job;
using cohort::testing::killing;
using cohort::testing::Process;

constexpr int kResumedCount = 100;

class ResumedJob : public ::testing::Test {
 protected:
  ResumedJob() { std::filesystem::remove_all(folder_); }
  ~ResumedJob() override { std::filesystem::remove_all(folder_); }
  Job job(int replicas = 1, int save_every = 0, std::vector<std::string> environment = {}) const {
    std::filesystem::create_directories(folder_);
    return Job({RESUMED_PROGRAM, std::to_string(kResumedCount), std::to_string(replicas), folder_,
                std::to_string(save_every)},
               2, std::move(environment));
  }
  static void expect_all(const std::string& text, const char* resumed = "resumed: 1") {
    for (const std::string& each :
         {std::string(resumed), std::string("results right"),
          str_cat("wide ", kResumedCount, " to ", kResumedCount, "\n"),
          str_cat("table ", kResumedCount / 10, " to ", kResumedCount / 10, "\n"),
          str_cat("ended: ", kResumedCount, " added")}) {
      EXPECT_NE(text.find(each), std::string::npos) << "no \"" << each << "\" in\n" << text;
    }
  }
  static void expect_read(const std::string& text) {
    const std::string all = str_cat("read: ", kResumedCount, ", each row once");
    EXPECT_NE(text.find(all), std::string::npos) << text;
  }

  const std::string folder_ = str_cat(::testing::TempDir(), "cohort_resumed_", ::getpid());
};

class ResumedAt : public ResumedJob, public ::testing::WithParamInterface<const char*> {};

// Before it is written down that a function counts, in the middle of that, behind it, before, while
// and behind all servers are told, and when all functions have ended.
TEST_P(ResumedAt, AKilledChiefsProgramRunsAgain) {
  const Job job = this->job();
  const auto first = job.start("ps", 0);
  const auto second = job.start("ps", 1);
  const auto one = job.start("worker", 0);
  const auto two = job.start("worker", 1);
  const auto killed = job.start("chief", 0, killing(GetParam()));
  EXPECT_EQ(killed->wait(), 128 + SIGKILL) << killed->text();
  const auto chief = job.start("chief", 0);
  const auto in_time = as_promised(std::chrono::seconds(5));  // C5
  EXPECT_TRUE(chief->wait_for("resumed: 1", in_time)) << chief->text();
  EXPECT_EQ(chief->wait(), 0) << chief->text();
  expect_all(chief->text());
  expect_read(chief->text());
}

INSTANTIATE_TEST_SUITE_P(Places, ResumedAt,
                         ::testing::Values("coordinator.before_send#40", "coordinator.settles#30",
                                           "journal.torn#50", "coordinator.decided#30",
                                           "coordinator.settled#30",
                                           "coordinator.before_journal#20", "program.joined"));

// cohortrun starts the chief again, alone.
TEST_F(ResumedJob, CohortrunStartsTheProgramAgain) {
  std::filesystem::create_directories(folder_);
  const std::string program =
      str_cat("[ $COHORT_RESTART_COUNT = 0 ] && export COHORT_FAILPOINTS=",
              killing("coordinator.settles#30"), "; exec " RESUMED_PROGRAM " ", kResumedCount,
              " 1 ", folder_, " 0");
  Process run({COHORTRUN, "--ps", "2", "--workers", "2", "--chief", "--max-restarts", "1",
               "--prefix", "none", "--", "sh", "-c", program});
  EXPECT_EQ(run.wait(), 0) << run.text();
  expect_all(run.text());
  expect_read(run.text());
}

// A function has prepared some of its changes when its chief dies, and goes on when the next one
// has come.
TEST_F(ResumedJob, WhatTheOldChiefsFunctionsStillSendCountsNowhere) {
  const Job job = this->job();
  const auto first = job.start("ps", 0);
  const auto second = job.start("ps", 1);
  const auto one = job.start("worker", 0, "worker.before_function=stop#3");  // leaves it some
  const auto two = job.start("worker", 1, "worker.prepares=stop#33");
  const auto killed = job.start("chief", 0);
  ASSERT_TRUE(comes_to_stop(*two)) << two->text();
  ASSERT_TRUE(comes_to_stop(*one)) << one->text();
  one->signal(SIGCONT);
  killed->signal(SIGKILL);
  killed->wait();
  const auto chief = job.start("chief", 0, "coordinator.servers_greeted=stop");
  ASSERT_TRUE(comes_to_stop(*chief)) << chief->text();
  two->signal(SIGCONT);
  EXPECT_TRUE(two->wait_for("refused: ")) << two->text();
  EXPECT_TRUE(two->wait_for("another chief has begun as number 2")) << two->text();
  chief->signal(SIGCONT);
  EXPECT_EQ(chief->wait(), 0) << chief->text();
  expect_all(chief->text());
  expect_read(chief->text());
}

// Where the journal's lock does not hold, as on some shared file systems, a chief that stands still
// is followed; when it goes on, nothing that it does counts.
class FollowedAt : public ResumedJob, public ::testing::WithParamInterface<const char*> {
 protected:
  void run(const Job& job) const {
    const auto first = job.start("ps", 0);
    const auto second = job.start("ps", 1);
    const auto one = job.start("worker", 0);
    const auto two = job.start("worker", 1);
    const auto old = job.start("chief", 0, str_cat(GetParam(), "=stop#30"));
    ASSERT_TRUE(comes_to_stop(*old)) << old->text();
    ASSERT_TRUE(std::filesystem::remove(folder_ + "/journal/lock"));
    const auto chief = job.start("chief", 0, "coordinator.settled=stop#10");
    ASSERT_TRUE(comes_to_stop(*chief)) << chief->text();
    old->signal(SIGCONT);
    EXPECT_EQ(old->wait(), 1) << old->text();
    EXPECT_NE(old->text().find("another chief has begun"), std::string::npos) << old->text();
    EXPECT_EQ(old->text().find("ended:"), std::string::npos) << old->text();
    chief->signal(SIGCONT);
    EXPECT_EQ(chief->wait(), 0) << chief->text();
    expect_all(chief->text());
    expect_read(chief->text());
  }
};

TEST_P(FollowedAt, TheOldChiefEndsWithAnErrorAndChangesNothing) { run(this->job()); }

TEST_P(FollowedAt, TheSameOfServersWithCopies) {
  const StoreServer store{cohort::internal::cluster::StoreServerOptions{}};
  run(this->job(2, 0, {"COHORT_STORE=" + store.address()}));
}

INSTANTIATE_TEST_SUITE_P(Places, FollowedAt,
                         ::testing::Values("coordinator.before_send", "coordinator.settles",
                                           "coordinator.decided", "coordinator.settled",
                                           "coordinator.before_journal", "journal.torn"));

TEST_F(ResumedJob, OneThatStandsStillIsNotFollowed) {
  const Job job = this->job();
  const auto first = job.start("ps", 0);
  const auto second = job.start("ps", 1);
  const auto one = job.start("worker", 0);
  const auto two = job.start("worker", 1);
  const auto stopped = job.start("chief", 0, "coordinator.settles=stop#30");
  ASSERT_TRUE(comes_to_stop(*stopped)) << stopped->text();
  const auto next = job.start("chief", 0);
  EXPECT_EQ(next->wait(), 1);
  EXPECT_NE(next->text().find("no other coordinator"), std::string::npos) << next->text();
  stopped->signal(SIGCONT);
  EXPECT_EQ(stopped->wait(), 0) << stopped->text();
  expect_all(stopped->text(), "resumed: 0");
}

// With its servers: variables are new, and so is everything that the journal has.
TEST_F(ResumedJob, NewServersBeginAnew) {
  for (const int lost : {0, 1}) {
    const Job job = this->job();
    auto first = job.start("ps", 0);
    auto second = job.start("ps", 1);
    const auto one = job.start("worker", 0);
    const auto two = job.start("worker", 1);
    const auto killed = job.start("chief", 0, killing("coordinator.decided#30"));
    EXPECT_EQ(killed->wait(), 128 + SIGKILL) << killed->text();
    (lost == 0 ? first : second).reset();
    (lost == 0 ? first : second) = job.start("ps", lost);
    const auto chief = job.start("chief", 0);
    EXPECT_EQ(chief->wait(), 0) << chief->text();
    expect_all(chief->text(), "resumed: 0");
    expect_read(chief->text());
  }
}

// Checkpoints in between: the chief alone dies, and then all; before the journal has forgotten what
// was saved, and behind it.
TEST_F(ResumedJob, GoesOnWithCheckpoints) {
  const Job job = this->job(1, 20);
  auto first = job.start("ps", 0);
  auto second = job.start("ps", 1);
  auto one = job.start("worker", 0);
  auto two = job.start("worker", 1);
  auto chief = job.start("chief", 0, killing("program.saved#2"));
  EXPECT_EQ(chief->wait(), 128 + SIGKILL) << chief->text();
  chief = job.start("chief", 0, killing("coordinator.settled#7"));
  EXPECT_EQ(chief->wait(), 128 + SIGKILL) << chief->text();
  EXPECT_NE(chief->text().find("resumed: 1, from 40"), std::string::npos) << chief->text();
  for (auto* const each : {&first, &second, &one, &two}) each->reset();
  first = job.start("ps", 0);
  second = job.start("ps", 1);
  one = job.start("worker", 0);
  two = job.start("worker", 1);
  chief = job.start("chief", 0, killing("coordinator.settled#30"));
  EXPECT_EQ(chief->wait(), 128 + SIGKILL) << chief->text();
  EXPECT_NE(chief->text().find("resumed: 0, from 40"), std::string::npos) << chief->text();
  chief = job.start("chief", 0);
  EXPECT_EQ(chief->wait(), 0) << chief->text();
  expect_all(chief->text(), "resumed: 1, from 60");
}

// Of replicated servers a primary dies together with the chief.
TEST_F(ResumedJob, ServersWithCopiesGoOn) {
  const StoreServer store{cohort::internal::cluster::StoreServerOptions{}};
  const Job job = this->job(
      2, 0,
      {"COHORT_STORE=" + store.address(), "COHORT_LEASE_MS=3000", "COHORT_COORDINATOR_LEASE=60"});
  auto first = job.start("ps", 0);
  const auto second = job.start("ps", 1);
  const auto one = job.start("worker", 0);
  const auto two = job.start("worker", 1);
  const auto killed = job.start("chief", 0, killing("coordinator.decided#30"));
  EXPECT_EQ(killed->wait(), 128 + SIGKILL) << killed->text();
  first.reset();
  first = job.start("ps", 0, {}, {"COHORT_RESTART_COUNT=1"});
  const auto chief = job.start("chief", 0);
  EXPECT_EQ(chief->wait(), 0) << chief->text();
  expect_all(chief->text());
  expect_read(chief->text());
}

// Of replicated servers all that had some variables are new: the next chief is killed when they
// have heard of it, and before its journal forgets what is gone.
TEST_F(ResumedJob, AChiefThatBeginsAnewWithCopiesMayDie) {
  const StoreServer store{cohort::internal::cluster::StoreServerOptions{}};
  const Job job = this->job(2, 0, {"COHORT_STORE=" + store.address(), "COHORT_LEASE_MS=3000"});
  auto first = job.start("ps", 0);
  auto second = job.start("ps", 1);
  const auto one = job.start("worker", 0);
  const auto two = job.start("worker", 1);
  auto chief = job.start("chief", 0, killing("coordinator.decided#30"));
  EXPECT_EQ(chief->wait(), 128 + SIGKILL) << chief->text();
  first.reset();
  second.reset();
  first = job.start("ps", 0);
  second = job.start("ps", 1);
  for (const char* place : {"coordinator.groups_begun", "coordinator.groups_begun"}) {
    chief = job.start("chief", 0, killing(place));
    EXPECT_EQ(chief->wait(), 128 + SIGKILL) << chief->text();
  }
  chief = job.start("chief", 0);
  EXPECT_EQ(chief->wait(), 0) << chief->text();
  expect_all(chief->text(), "resumed: 0");
  expect_read(chief->text());
}

// Three chiefs die one after the other, wherever a seed says, and a worker does, too.
class ResumedAtSeeds : public ResumedJob {
 protected:
  void run(unsigned seed) {
    std::mt19937 random(seed);
    constexpr std::array kPlaces = {"coordinator.before_send",    "coordinator.settles",
                                    "coordinator.decided",        "coordinator.settled",
                                    "coordinator.before_journal", "journal.torn"};
    const Job job = this->job();
    const auto first = job.start("ps", 0);
    const auto second = job.start("ps", 1);
    const auto one = job.start("worker", 0);
    auto two = job.start("worker", 1);
    std::string places;
    for (int life = 0; life < 3; ++life) {
      const std::string place = str_cat(kPlaces[random() % kPlaces.size()], "#", 4 + random() % 20);
      places += place + ", ";
      const auto killed = job.start("chief", 0, killing(place));
      if (life == 1) {
        ::usleep(static_cast<unsigned>(random() % 400) * 1000);
        two.reset();
        two = job.start("worker", 1, {}, {"COHORT_RESTART_COUNT=1"});
      }
      EXPECT_EQ(killed->wait(), 128 + SIGKILL) << places << killed->text();
    }
    const auto chief = job.start("chief", 0);
    EXPECT_EQ(chief->wait(), 0) << places << chief->text();
    expect_all(chief->text());
    expect_read(chief->text());
  }
};

TEST_F(ResumedAtSeeds, EverythingCountsOnce) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    std::filesystem::remove_all(folder_);
    run(seed);
  }
}

}  // namespace
