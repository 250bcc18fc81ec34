// SPDX-License-Identifier: Apache-2.0
//
// fit, slots and checkpoints on parameter servers with copies, over TLS, of which one is killed, or
// stands still for longer than its lease.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "cohort/base/strings.h"
#include "cohort/cluster/store/store_server.h"
#include "tests/parameter_servers/job.h"

namespace {

using cohort::str_cat;
using cohort::internal::cluster::StoreServer;
using cohort::testing::comes_to_stop;
using cohort::testing::Job;
using cohort::testing::number_behind;
using cohort::testing::Process;

/// Ends with what is in it.
struct Directory {
  const std::string path = str_cat(::testing::TempDir(), "replicated_fit_", ::getpid());
  Directory() { std::filesystem::create_directories(path); }
  ~Directory() { std::filesystem::remove_all(path); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
};

void expect_each_step_once(const std::string& text, int steps) {
  EXPECT_EQ(number_behind(text, "steps: "), steps) << text;
  EXPECT_EQ(number_behind(text, "counted: "), steps) << text;
  EXPECT_EQ(number_behind(text, "restored: "), 1) << text;
  EXPECT_EQ(number_behind(text, "moved: "), 1) << text;
}

// The server that is killed comes back: cohortrun starts it again.
TEST(ReplicatedFit, CountsEachStepOnceOverTlsWhenAServerIsKilled) {
  const Directory directory;
  const std::string task = str_cat(
      "echo begins as number ${COHORT_RESTART_COUNT:-0}; case \"$TF_CONFIG\" in "
      "*'\"type\":\"ps\",\"index\":0'*|*'\"type\": \"ps\", \"index\": 0'*) "
      "[ \"${COHORT_RESTART_COUNT:-0}\" = 0 ] && "
      "export COHORT_FAILPOINTS=ps.before_answer=kill#120;; esac; exec ",
      FIT_PROGRAM, " ", directory.path, " 400");
  Process job({COHORTRUN, "--ps", "2", "--workers", "2", "--chief", "--max-restarts", "3",
               "--no-bind", "--tls", "--grace", "5", "--", "sh", "-c", task},
              {"COHORT_MIN_LOG_LEVEL=1", "COHORT_LEASE_MS=3000"});
  EXPECT_EQ(job.wait(), 0) << job.text();
  EXPECT_NE(job.text().find("[ps 0] begins as number 1"), std::string::npos) << job.text();
  expect_each_step_once(job.text(), 400);
}

// Who stood still answers again, believes for a moment that it leads, and is refused.
TEST(ReplicatedFit, CountsEachStepOnceWhenAServerStandsStill) {
  const Directory directory;
  const StoreServer store{cohort::internal::cluster::StoreServerOptions{}};
  const Job job({FIT_PROGRAM, directory.path, "3000"}, 2,
                {"COHORT_STORE=" + store.address(), "COHORT_LEASE_MS=3000",
                 "COHORT_COORDINATOR_LEASE=60", "COHORT_MIN_LOG_LEVEL=0"});
  const auto stopped = job.start("ps", 0, "ps.before_answer=stop#200");
  const auto steady = job.start("ps", 1);
  const auto first = job.start("worker", 0);
  const auto second = job.start("worker", 1);
  const auto chief = job.start("chief", 0);
  ASSERT_TRUE(comes_to_stop(*stopped)) << stopped->text();
  ASSERT_TRUE(steady->wait_for("is the primary of shards 0")) << steady->text() << chief->text();
  stopped->signal(SIGCONT);
  EXPECT_EQ(chief->wait(), 0) << chief->text() << steady->text() << stopped->text();
  expect_each_step_once(chief->text(), 3000);
  EXPECT_EQ(stopped->wait(), 0) << stopped->text();
  EXPECT_EQ(steady->wait(), 0) << steady->text();
}

}  // namespace
