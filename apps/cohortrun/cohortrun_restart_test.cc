// SPDX-License-Identifier: Apache-2.0
//
// What happens after a failure: who is named, and whether all begin again.
#include <gtest/gtest.h>

#include "apps/cohortrun/test_run.h"

namespace {

using cohortrun::testing::Folder;
using cohortrun::testing::Ran;
using cohortrun::testing::run;

int count_of(const std::string& text, const std::string& what) {
  int count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

// Worker 0 would run for ever in the first attempt, and is ended with the other one.
TEST(CohortrunRestart, AllTasksBeginAgainWithTheNextNumber) {
  const Ran ran =
      run("--workers 2 --max-restarts 2 -- sh -c "
          "'echo begin $RANK of attempt $COHORT_RESTART_COUNT; "
          "[ $COHORT_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && exit 9; "
          "exec sleep 1000'");
  EXPECT_EQ(ran.code, 0) << ran.text;
  for (const char* line : {"[worker 0] begin 0 of attempt 0", "[worker 1] begin 1 of attempt 0",
                           "[worker 0] begin 0 of attempt 1", "[worker 1] begin 1 of attempt 1"}) {
    EXPECT_TRUE(ran.has(line)) << ran.text;
  }
  EXPECT_TRUE(ran.has("cohortrun: starting all tasks again (restart 1 of 2)")) << ran.text;
  EXPECT_FALSE(ran.says("attempt 2"));
}

TEST(CohortrunRestart, TheLastFailureIsTheJobs) {
  const Ran ran = run("--workers 1 --max-restarts 2 -- sh -c 'exit $((COHORT_RESTART_COUNT + 5))'");
  EXPECT_EQ(ran.code, 7) << ran.text;
  EXPECT_EQ(count_of(ran.text, "starting all tasks again"), 2) << ran.text;
}

TEST(CohortrunRestart, PoliciesSayWhichFailuresAreMetByOne) {
  struct Case {
    const char* policy;
    const char* program;
    int restarts;
    int code;
  };
  const std::vector<Case> cases = {{"never", "exit 130", 0, 130},
                                   {"exit-code", "exit 3", 0, 3},
                                   {"exit-code", "exit 143", 1, 143},
                                   {"exit-code", "kill -9 $$", 1, 137},
                                   {"on-failure", "exit 3", 1, 3}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.policy);
    const Ran ran = run(cohort::str_cat("--workers 1 --max-restarts 1 --restart-policy ",
                                        each.policy, " -- sh -c '", each.program, "'"));
    EXPECT_EQ(ran.code, each.code) << ran.text;
    EXPECT_EQ(count_of(ran.text, "starting all tasks again"), each.restarts) << ran.text;
  }
}

// $COHORT_RESTART_COUNT of each, as it begins.
std::string servers_job(const std::string& of_type_1, const std::string& otherwise) {
  return " -- bash -c 'type=$(sed \"s/.*\\\"type\\\": \\\"\\([a-z]*\\).*/\\1/\" <<< "
         "\"$TF_CONFIG\"); echo begins as number $COHORT_RESTART_COUNT; case $type$RANK in " +
         of_type_1 + ") " + otherwise + " esac'";
}

// The chief and the other worker are not ended: they wait for the one that has died.
TEST(CohortrunRestart, AWorkerBesideParameterServersBeginsAgainAlone) {
  const Folder folder;
  const std::string back = folder.path() + "/back";
  const Ran ran = run("--chief --workers 1 --ps 1 --max-restarts 2" +
                      servers_job("worker1) [ $COHORT_RESTART_COUNT = 0 ] && kill -9 $$; > " +
                                      back + "; exec sleep 1000;; ps*) exec sleep 1000;; *",
                                  "while [ ! -e " + back + " ]; do sleep 0.01; done;;"));
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(
      ran.has("cohortrun: worker 0 was killed by signal 9 (Killed); starting it again "
              "(restart 1 of 2)"))
      << ran.text;
  EXPECT_TRUE(ran.has("[worker 0] begins as number 1")) << ran.text;
  EXPECT_EQ(count_of(ran.text, "[chief 0] begins"), 1) << ran.text;
  EXPECT_EQ(count_of(ran.text, "[ps 0] begins"), 1) << ran.text;
}

TEST(CohortrunRestart, AChiefThatWasKilledBeginsAgainAlone) {
  const Ran ran = run(
      "--chief --workers 1 --ps 1 --max-restarts 1" +
      servers_job("chief*) [ $COHORT_RESTART_COUNT = 1 ] || kill -9 $$;; *", "exec sleep 1000;;"));
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.has("[chief 0] begins as number 1")) << ran.text;
  EXPECT_EQ(count_of(ran.text, "[worker 0] begins"), 1) << ran.text;
  EXPECT_EQ(count_of(ran.text, "[ps 0] begins"), 1) << ran.text;
}

// What its program cannot go on from may be the others' state, too.
TEST(CohortrunRestart, AChiefThatEndsWithAnErrorIsTheJobs) {
  const Ran ran =
      run("--chief --ps 1 --max-restarts 1" +
          servers_job("chief*) exit $((1 - COHORT_RESTART_COUNT));; *", "exec sleep 1000;;"));
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_EQ(count_of(ran.text, "starting all tasks again"), 1) << ran.text;
}

TEST(CohortrunRestart, AParameterServerBeginsAgainAloneAsOftenAsItMay) {
  const Ran ran = run("--chief --ps 1 --max-restarts 2" +
                      servers_job("ps*) exit 140;; *", "exec sleep 1000;;"));
  EXPECT_EQ(ran.code, 140) << ran.text;
  EXPECT_EQ(count_of(ran.text, "; starting it again"), 2) << ran.text;
  EXPECT_TRUE(ran.has("[ps 0] begins as number 2")) << ran.text;
  EXPECT_EQ(count_of(ran.text, "[chief 0] begins"), 1) << ran.text;
}

// Who asks the job to end does not want it again.
TEST(CohortrunRestart, ASignalToCohortrunEndsTheJobForGood) {
  const Ran ran = run("--workers 1 --max-restarts 5 -- sh -c 'kill -TERM $PPID; exec sleep 1000'");
  EXPECT_EQ(ran.code, 143) << ran.text;
  EXPECT_FALSE(ran.says("again")) << ran.text;
}

TEST(CohortrunRestart, TheFirstToFailIsShownWithItsLastLines) {
  const Ran ran =
      run("--workers 2 -- sh -c '[ $RANK = 1 ] || exec sleep 1000; "
          "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $i >&2; done; "
          "echo other; exit 4'");
  EXPECT_EQ(ran.code, 4);
  const std::size_t at = ran.text.find(
      "cohortrun: the last lines of worker 1:\n"
      "cohortrun:   line 3\n");
  EXPECT_NE(at, std::string::npos) << ran.text;
  EXPECT_TRUE(ran.has("cohortrun:   line 12")) << ran.text;
  EXPECT_FALSE(ran.has("cohortrun:   line 2")) << ran.text;
}

TEST(CohortrunRestart, EachAttemptHasFilesOfItsOwn) {
  const Folder folder;
  const Ran ran = run("--workers 1 --max-restarts 1 --log-dir " + folder.path() +
                      " -- sh -c 'echo $COHORT_RESTART_COUNT; exit 1'");
  EXPECT_EQ(ran.code, 1) << ran.text;
  const std::string job = std::filesystem::directory_iterator(folder.path())->path().filename();
  EXPECT_EQ(folder.read(job + "/attempt_0/worker_0/stdout.log"), "0\n");
  EXPECT_EQ(folder.read(job + "/attempt_1/worker_0/stdout.log"), "1\n");
  EXPECT_TRUE(ran.has("[worker 0] 1")) << "files are beside the console: " << ran.text;
}

}  // namespace
