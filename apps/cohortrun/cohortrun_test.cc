// SPDX-License-Identifier: Apache-2.0
//
// Runs the program itself, with shells as workers.
#include <gtest/gtest.h>
#include <signal.h>

#include "apps/cohortrun/test_run.h"

namespace {

using cohortrun::testing::Folder;
using cohortrun::testing::Ran;
using cohortrun::testing::run;
using cohortrun::testing::run_shell;

TEST(Cohortrun, GivesEachProcessItsTaskAndPrefixesItsLines) {
  const Ran ran =
      run("--workers 2 --chief --evaluator --port-base 9100 -- sh -c "
          "'echo $RANK of $WORLD_SIZE; echo \"$TF_CONFIG\" >&2'");
  EXPECT_EQ(ran.code, 0) << ran.text;
  const auto line = [](const char* who, const char* task) {
    return cohort::str_cat(
        "[", who, R"(] {"cluster": {"chief": ["localhost:9100"], "worker": ["localhost:9101", )",
        R"("localhost:9102"], "evaluator": ["localhost:9103"]}, "task": {"type": )", task, "}}");
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
// What cohortrun opens would get their numbers.
TEST(Cohortrun, StandardStreamsMayBeClosed) {
  for (const char* closed : {">&-", "2>&-", "<&- >&- 2>&-"}) {
    const Ran ran = run_shell(cohort::str_cat("timeout 20 ", COHORTRUN,
                                              " --workers 2 -- sh -c 'echo out; echo err >&2' ",
                                              closed, "; echo code $?"));
    EXPECT_TRUE(ran.has("code 0")) << closed << ran.text;
  }
}

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

// As Cohort's programs end that have lost another worker, which may be seen to end later.
TEST(Cohortrun, WhoHasLostAnotherIsNotTheCause) {
  const Ran ran = run("--workers 2 -- sh -c '[ $RANK = 0 ] && exit 134; sleep 0.1; exit 1'");
  EXPECT_EQ(ran.code, 1) << ran.text;
  EXPECT_TRUE(
      ran.has("cohortrun: worker 1 ended with exit code 1, then worker 0 ended with exit code 134; "
              "exit code 1"))
      << ran.text;
  EXPECT_EQ(run("--workers 2 -- sh -c 'exit 134'").code, 134);
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

// As torchrun reads them: what comes after the program's name is the program's.
TEST(Cohortrun, ReadsTorchrunsFlags) {
  const Ran ran =
      run("--standalone --nnodes=1:1 --nproc_per_node=2 --no-python --rdzv_id=7 "
          "echo --workers $RANK -n");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.has("[worker 1] --workers -n")) << ran.text;
  const Ran all =
      run("--nproc-per-node 2 --max_restarts 3 --rdzv-id job7 -- sh -c "
          "'echo $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $ROLE_RANK $MASTER_ADDR "
          "$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $COHORT_RUN_ID'");
  EXPECT_EQ(all.code, 0);
  EXPECT_TRUE(all.says("[worker 1] 1 2 0 1 localhost 0 3 job7_")) << all.text;
}

TEST(Cohortrun, TakesWhatScriptsOfTorchrunSayBeside) {
  const Ran ran =
      run("--nproc-per-node 3 --monitor-interval 0.5 --role trainer --local_ranks_filter 0,2 "
          "--start-method spawn -- sh -c 'echo $RANK $ROLE_NAME'");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.has("[worker 0] 0 trainer")) << ran.text;
  EXPECT_TRUE(ran.has("[worker 2] 2 trainer")) << ran.text;
  EXPECT_FALSE(ran.says("worker 1")) << ran.text;
  EXPECT_TRUE(ran.says("--start-method spawn has no meaning here")) << ran.text;
  EXPECT_TRUE(run("--nproc-per-node 1 -- sh -c 'echo $ROLE_NAME'").has("[worker 0] default"));
  for (const char* python : {"-m package", "--module package", "--run-path script"}) {
    const Ran refused = run(std::string("--nproc-per-node 1 ") + python);
    EXPECT_EQ(refused.code, 2) << python;
    EXPECT_TRUE(refused.says("expected a program, got a module or script of Python's"))
        << refused.text;
  }
  const Ran wrong = run("--nproc-per-node 1 --local-ranks-filter first -- true");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_TRUE(wrong.says("--local-ranks-filter")) << wrong.text;
}

TEST(Cohortrun, ReadsPetVariablesAsAContainersEntryPoint) {
  const Ran ran =
      run_shell("PET_NPROC_PER_NODE=2 PET_NNODES=1 PET_NODE_RANK=0 PET_MAX_RESTARTS=1 " COHORTRUN
                " sh -c '[ $COHORT_RESTART_COUNT = 1 ] && echo rank $RANK "
                "|| exit 3'");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.has("[worker 1] rank 1")) << ran.text;
  // What is said comes before them.
  const Ran said = run_shell("PET_NPROC_PER_NODE=2 " COHORTRUN
                             " --workers 1 -- "
                             "sh -c 'echo $WORLD_SIZE'");
  EXPECT_EQ(said.text, "[worker 0] 1\n");
}

TEST(Cohortrun, ARangeOfNodesIsRefused) {
  const Ran ran = run("--nnodes 1:4 --nproc-per-node 1 -- true");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(ran.says("workers cannot come and go in a running job yet")) << ran.text;
  EXPECT_TRUE(ran.says("--nnodes 4")) << ran.text;
}

// Each of them would be a job of its own.
TEST(Cohortrun, ARankWithoutItsNumberOfNodesIsRefused) {
  const Ran ran = run("--node-rank 1 --rdzv-endpoint 127.0.0.1:29400 --nproc-per-node 1 -- true");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(ran.says("expected --node-rank below --nnodes 1, got 1")) << ran.text;
  EXPECT_EQ(run("--standalone --node-rank 1 --nproc-per-node 1 -- true").code, 0);
}

TEST(Cohortrun, BeyondThisHostNothingIsSentInTheOpen) {
  const Ran ran = run("--nnodes 2 --node-rank 1 --rdzv-endpoint example.com:29400 -- true");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(ran.says("--hostfile")) << ran.text;
  EXPECT_TRUE(ran.says("--allow-insecure")) << ran.text;
}

// They serve for ever: the job is over when the workers are.
TEST(Cohortrun, ParameterServersAreEndedAfterTheWorkers) {
  const Folder folder;
  const std::string up = folder.path() + "/up";
  const Ran ran =
      run("--workers 2 --ps 1 --port-base 9200 -- sh -c "
          "'case \"$TF_CONFIG\" in *\\\"type\\\":\\ \\\"ps*) echo server $RANK; > " +
          up + "; exec sleep 1000;; esac; while [ ! -e " + up +
          " ]; do sleep 0.01; done; echo worker'");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.has("[ps 0] server")) << ran.text;
  EXPECT_TRUE(ran.has("[worker 1] worker")) << ran.text;
}

// What a task has left behind in the background, and does not hear SIGTERM; in the second case not
// even in its process group.
TEST(Cohortrun, GrandchildrenAreEndedWhenTheGraceIsOver) {
  for (const char* apart : {"", "setsid "}) {
    const Folder folder;
    const std::string pid = folder.path() + "/pid";
    const Ran ran = run(cohort::str_cat("--workers 1 --grace 1 -- sh -c '", apart,
                                        "sh -c \"trap : INT; trap \\\"\\\" TERM; echo \\$\\$ > ",
                                        pid, "; exec sleep 1000\" > /dev/null 2>&1 & while [ ! -s ",
                                        pid, " ]; do sleep 0.01; done'"));
    EXPECT_EQ(ran.code, 0) << ran.text;
    std::ifstream file(pid);
    pid_t grandchild = 0;
    ASSERT_TRUE(file >> grandchild);
    EXPECT_NE(::kill(grandchild, 0), 0) << apart << grandchild << " still lives";
  }
}

// Killed, it can end nobody: tasks that are shells would leave what they have started, also what
// does not hear SIGTERM.
TEST(Cohortrun, WhatTasksHaveStartedEndsWhereCohortrunIsKilled) {
  for (const char* hears : {"", "trap \\\"\\\" TERM; "}) {
    const Folder folder;
    const std::string at = folder.path();
    const Ran ran = run_shell(cohort::str_cat(
        COHORTRUN, " --workers 1 --grace 1 -- sh -c 'sh -c \"", hears, "echo \\$\\$ > ", at,
        "/new; mv ", at, "/new ", at, "/pid; exec sleep 1000\"; true' & until [ -e ", at,
        "/pid ]; do sleep 0.01; done; kill -9 $!; wait $!; echo code $?; for i in $(seq 1000); do "
        "kill -0 $(cat ",
        at, "/pid) 2> /dev/null || break; sleep 0.01; done; kill -9 $(cat ", at,
        "/pid) 2> /dev/null || echo ended"));
    EXPECT_TRUE(ran.has("code 137") && ran.has("ended")) << hears << ran.text;
  }
}

// Its output is a pipe that nobody reads. It holds back what its tasks write, and hears SIGTERM.
TEST(Cohortrun, AFullPipeStopsNothingButTheTasksThatFillIt) {
  Folder folder;
  const std::string at = folder.path();
  const Ran ran = run_shell(
      cohort::str_cat("mkfifo ", at, "/pipe; exec 3<>", at, "/pipe; ", COHORTRUN,
                      " --workers 1 --grace 1 -- sh -c 'yes | head -c 100000; > ", at,
                      "/written; exec yes' > ", at, "/pipe 2>&1 3>&- & while [ ! -e ", at,
                      "/written ]; do sleep 0.01; done; kill -TERM $!; wait $!; echo code $?"));
  EXPECT_TRUE(ran.has("code 143")) << ran.text;
}

// Nobody reads what rank 0 writes, and rank 1 dies: it is heard of, and the job started again.
TEST(Cohortrun, AFullPipeKeepsNoDeathFromBeingHeard) {
  Folder folder;
  const std::string at = folder.path();
  const Ran ran = run_shell(cohort::str_cat(
      "mkfifo ", at, "/pipe; exec 3<>", at, "/pipe; ", COHORTRUN,
      " --workers 2 --max-restarts 1 --grace 1 -- sh -c 'if [ $COHORT_RESTART_COUNT = 1 ]; then > ",
      at, "/again; sleep 1000; fi; [ $RANK = 0 ] && exec yes; sleep 1; exit 7' > ", at,
      "/pipe 2>&1 3>&- & i=0; while [ ! -e ", at,
      "/again ] && [ $i -lt 1000 ]; do sleep 0.02; i=$((i + 1)); done; [ -e ", at,
      "/again ] && echo heard; kill -TERM $!; wait $!; echo code $?"));
  EXPECT_TRUE(ran.has("heard")) << ran.text;
  EXPECT_TRUE(ran.has("code 143")) << ran.text;
}

TEST(Cohortrun, AJobWithParameterServersIsOverWhenItsChiefIs) {
  const Ran ran =
      run("--chief --workers 1 --ps 1 -- sh -c 'case \"$TF_CONFIG\" in *\\\"type\\\":\\ "
          "\\\"chief*) echo done;; *) exec sleep 1000;; esac'");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.has("[chief 0] done")) << ran.text;
}

TEST(Cohortrun, WritesTheLinesOfEachTaskIntoItsOwnFiles) {
  const Folder folder;
  const Ran ran = run("--workers 2 --log-dir " + folder.path() +
                      " --rdzv-id logs --redirects 0:1 --tee 1:3 --prefix mpi -- "
                      "sh -c 'echo out $RANK; echo err $RANK >&2'");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_EQ(ran.lines, (std::vector<std::string>{"[1,0]<stderr>:err 0", "[1,1]<stderr>:err 1",
                                                 "[1,1]<stdout>:out 1"}));
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  const std::string job = std::filesystem::directory_iterator(folder.path())->path().filename();
  EXPECT_EQ(job.rfind("logs_", 0), 0U) << job;
  EXPECT_EQ(folder.read(job + "/attempt_0/worker_0/stdout.log"), "out 0\n");
  EXPECT_EQ(folder.read(job + "/attempt_0/worker_1/stdout.log"), "out 1\n");
  EXPECT_EQ(folder.read(job + "/attempt_0/worker_1/stderr.log"), "err 1\n");
}

// As on a full disk.
TEST(Cohortrun, AFileThatTakesNoMoreIsNamed) {
  const Folder folder;
  const Ran ran =
      run_shell("trap \"\" XFSZ; ulimit -f 8; " COHORTRUN " --workers 1 --rdzv-id full --log-dir " +
                folder.path() +
                " --redirects 3 -- sh -c 'yes 0123456789 | head -c 100000; echo last; "
                "echo its end >&2'");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.says("cohortrun: failed to write to " + folder.path() + "/full_")) << ran.text;
  EXPECT_TRUE(ran.says("stdout.log (--log-dir): File too large")) << ran.text;
}

TEST(Cohortrun, ItsHelpSaysWhatItDoes) {
  const Ran ran = run("--help");
  EXPECT_EQ(ran.code, 0);
  EXPECT_NE(ran.text.find("--workers"), std::string::npos);
}

}  // namespace
