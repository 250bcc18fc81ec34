// SPDX-License-Identifier: Apache-2.0
//
// Runs the program itself, with shells as workers.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/testing/deadline.h"

namespace {

struct Ran {
  int code = -1;
  std::vector<std::string> lines = {};  // of both outputs, sorted
  std::string text = {};
  bool has(const std::string& line) const {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  }
};

Ran run(const std::string& arguments) {
  return cohort::testing::run_with_deadline(std::chrono::seconds(60), [&] {
    Ran ran;
    std::FILE* pipe = ::popen(cohort::str_cat(COHORTRUN, " ", arguments, " 2>&1").c_str(), "r");
    std::array<char, 4096> bytes;
    while (const std::size_t got = std::fread(bytes.data(), 1, bytes.size(), pipe)) {
      ran.text.append(bytes.data(), got);
    }
    const int status = ::pclose(pipe);
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    std::istringstream lines(ran.text);
    for (std::string line; std::getline(lines, line);) ran.lines.push_back(line);
    std::sort(ran.lines.begin(), ran.lines.end());
    return ran;
  });
}

TEST(Cohortrun, GivesEachProcessItsTaskAndPrefixesItsLines) {
  const Ran ran =
      run("--workers 2 --chief --evaluator --port-base 20000 -- sh -c "
          "'echo $RANK of $WORLD_SIZE; echo \"$TF_CONFIG\" >&2'");
  EXPECT_EQ(ran.code, 0) << ran.text;
  const auto line = [](const char* who, const char* task) {
    return cohort::str_cat(
        "[", who, R"(] {"cluster": {"chief": ["localhost:20000"], "worker": ["localhost:20001", )",
        R"("localhost:20002"], "evaluator": ["localhost:20003"]}, "task": {"type": )", task, "}}");
  };
  EXPECT_TRUE(ran.has("[chief 0] 0 of 3")) << ran.text;
  EXPECT_TRUE(ran.has("[worker 1] 2 of 3")) << ran.text;
  EXPECT_TRUE(ran.has("[evaluator 0] of")) << ran.text;
  EXPECT_TRUE(ran.has(line("chief 0", R"("chief", "index": 0)"))) << ran.text;
  EXPECT_TRUE(ran.has(line("worker 1", R"("worker", "index": 1)"))) << ran.text;
  EXPECT_TRUE(ran.has(line("evaluator 0", R"("evaluator", "index": 0)"))) << ran.text;
}

TEST(Cohortrun, ALastLineWithoutItsEndIsPassedOn) {
  const Ran ran = run("--workers 1 -- printf 'a\\nb'");
  EXPECT_EQ(ran.text, "[worker 0] a\n[worker 0] b\n");
}

// The others would run for ever.
TEST(Cohortrun, OneThatFailsEndsTheOthersAndIsNamed) {
  const Ran ran = run("--workers 3 -- sh -c '[ $RANK = 1 ] && exit 7; sleep 1000'");
  EXPECT_EQ(ran.code, 7) << ran.text;
  EXPECT_TRUE(
      ran.has("cohortrun: worker 1 ended with exit code 7; the others were ended; "
              "exit code 7"))
      << ran.text;
}

// The others notice by themselves: each is named, who was killed first of all.
TEST(Cohortrun, AllThatFailAreNamed) {
  const Ran ran = run("--workers 2 -- sh -c '[ $RANK = 1 ] && kill -9 $$; exit 8'");
  EXPECT_EQ(ran.code, 137) << ran.text;
  EXPECT_TRUE(
      ran.has("cohortrun: worker 1 was killed by signal 9 (Killed), then worker 0 ended "
              "with exit code 8; exit code 137"))
      << ran.text;
}

TEST(Cohortrun, OneThatIsKilledHasItsSignalsExitCode) {
  const Ran ran = run("--workers 2 -- sh -c '[ $RANK = 0 ] && kill -9 $$; sleep 1000'");
  EXPECT_EQ(ran.code, 137) << ran.text;
  EXPECT_NE(ran.text.find("worker 0 was killed by signal 9 (Killed)"), std::string::npos);
}

TEST(Cohortrun, WhoDoesNotHearIsKilledAfterTheGrace) {
  const Ran ran =
      run("--workers 2 --grace 0 -- sh -c 'trap \"\" TERM; [ $RANK = 0 ] && exit 3; "
          "while :; do sleep 1000; done'");
  EXPECT_EQ(ran.code, 3) << ran.text;
}

// The signal comes from a worker, so that it is there in time.
TEST(Cohortrun, PassesOnTheSignalsThatEndPrograms) {
  const Ran ran =
      run("--workers 2 -- sh -c 'trap \"echo heard; exit 0\" TERM; "
          "[ $RANK = 0 ] && kill -TERM $PPID; while :; do sleep 0.01; done'");
  EXPECT_TRUE(ran.has("[worker 0] heard")) << ran.text;
  EXPECT_EQ(ran.code % 143, 0) << ran.text;  // worker 1 may not have come to its trap
}

TEST(Cohortrun, AProgramThatIsNotThereIsNamed) {
  const Ran ran = run("--workers 1 -- /nowhere/at/all");
  EXPECT_EQ(ran.code, 127);
  EXPECT_TRUE(
      ran.has("[worker 0] cohortrun: cannot start /nowhere/at/all: No such file or "
              "directory"))
      << ran.text;
}

TEST(Cohortrun, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(run("--workers 2 --nonsense -- true").code, 2);
  EXPECT_EQ(run("--workers 2").code, 2);
  const Ran none = run("-- true");
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.text.find("expected at least 1 worker"), std::string::npos) << none.text;
  const Ran cores = run("--workers 2 --cpus-per-worker 1000 -- true");
  EXPECT_EQ(cores.code, 1);
  EXPECT_NE(cores.text.find("expected at least 2000 cores"), std::string::npos) << cores.text;
}

TEST(Cohortrun, ItsHelpSaysWhatItDoes) {
  const Ran ran = run("--help");
  EXPECT_EQ(ran.code, 0);
  EXPECT_NE(ran.text.find("--workers"), std::string::npos);
}

}  // namespace
