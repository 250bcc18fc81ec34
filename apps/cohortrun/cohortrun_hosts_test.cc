// SPDX-License-Identifier: Apache-2.0
//
// Several hosts: as many cohortruns of this one, with addresses of the loopback.
#include <gtest/gtest.h>

#include "apps/cohortrun/test_run.h"
#include "cohort/testing/ports.h"

namespace {

using cohort::str_cat;
using cohortrun::testing::Folder;
using cohortrun::testing::Ran;
using cohortrun::testing::run;
using cohortrun::testing::run_shell;

// Does what ssh does, on this host: reads its flags, and has a shell run the rest.
constexpr const char* kSsh = R"(#!/bin/sh
while [ "${1#-}" != "$1" ]; do case $1 in -o|-p) shift;; esac; shift; done
host=$1; shift
echo "$host" >> "$(dirname "$0")/called"
echo "Welcome to $host"
cd / && exec sh -c "$*"
)";

class OverSsh : public ::testing::Test {
 protected:
  Ran run_there(const std::string& hosts, const std::string& arguments) {
    folder_.write("hosts", hosts);
    const std::string ssh = folder_.write("ssh", kSsh, /*is_program=*/true);
    return run(
        str_cat("--hostfile ", folder_.path(), "/hosts --ssh '", ssh, " -p 22' ", arguments));
  }
  Folder folder_;
};

TEST_F(OverSsh, TasksAreStartedOnEachHostInItsSlots) {
  const Ran ran = run_there("127.0.0.2 slots=2  # the first\n\nme@127.0.0.3:1\n127.0.0.4\n",
                            "--chief --workers 2 --port-base 9300 -- sh -c 'echo $RANK $LOCAL_RANK "
                            "$LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $MASTER_ADDR; "
                            "echo \"$TF_CONFIG\"; pwd >&2'");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.has("[chief 0] 0 0 2 0 2 127.0.0.2")) << ran.text;
  EXPECT_TRUE(ran.has("[worker 0] 1 1 2 0 2 127.0.0.2")) << ran.text;
  EXPECT_TRUE(ran.has("[worker 1] 2 0 1 1 2 127.0.0.2")) << ran.text;
  EXPECT_TRUE(ran.has(R"([worker 1] {"cluster": {"chief": ["127.0.0.2:9300"], "worker": )"
                      R"(["127.0.0.2:9301", "127.0.0.3:9300"]}, )"
                      R"("task": {"type": "worker", "index": 1}})"))
      << ran.text;
  EXPECT_TRUE(ran.has("[worker 1] " + std::filesystem::current_path().string())) << ran.text;
  const std::string called = folder_.read("called");
  EXPECT_NE(called.find("me@127.0.0.3\n"), std::string::npos) << called;
  EXPECT_EQ(called.find("127.0.0.4"), std::string::npos) << "it has no task: " << called;
}

TEST_F(OverSsh, AllSlotsAreFilledAndVariablesAreTakenAlong) {
  ::setenv("COHORT_TEST_TOKEN", "a b", 1);
  ::setenv("TEST_EXPORTED", "c", 1);
  const Ran ran = run_there("127.0.0.2:1\n127.0.0.3:2\n",
                            "-x TEST_EXPORTED -x TEST_GIVEN=d -- sh -c "
                            "'echo $WORLD_SIZE $COHORT_TEST_TOKEN $TEST_EXPORTED $TEST_GIVEN'");
  ::unsetenv("COHORT_TEST_TOKEN");
  ::unsetenv("TEST_EXPORTED");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.has("[worker 2] 3 a b c d")) << ran.text;
}

// Worker 0 would run for ever on the other host.
TEST_F(OverSsh, AFailureOnOneHostEndsThemAllAndAllBeginAgain) {
  const Ran ran = run_there("127.0.0.2\n127.0.0.3\n",
                            "--max-restarts 1 -- sh -c 'echo attempt $COHORT_RESTART_COUNT; "
                            "[ $COHORT_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 0 ] && "
                            "exec sleep 1000; echo broken >&2; exit 5'");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(
      ran.has("cohortrun: worker 1 on 127.0.0.3 ended with exit code 5; the others were "
              "ended; exit code 5"))
      << ran.text;
  EXPECT_TRUE(ran.has("cohortrun:   broken")) << ran.text;
  EXPECT_TRUE(ran.has("[worker 0] attempt 1")) << ran.text;
}

// The cohortrun over there is killed, with its worker.
TEST_F(OverSsh, AHostThatIsGoneIsNamed) {
  const Ran ran = run_there("127.0.0.2\n127.0.0.3\n",
                            "--max-restarts 3 -- sh -c '[ $RANK = 1 ] && kill -9 $PPID; "
                            "exec sleep 1000'");
  EXPECT_EQ(ran.code, 129) << ran.text;
  EXPECT_TRUE(
      ran.says("worker 1 on 127.0.0.3 is gone: the connection to its cohortrun was "
               "closed"))
      << ran.text;
  EXPECT_TRUE(ran.says("no restart: the host is gone")) << ran.text;
}

TEST_F(OverSsh, ASignalReachesTheOtherHosts) {
  // $PPID of worker 0 is its host's cohortrun; the job's is the one that has started that one's
  // ssh.
  const Ran ran =
      run_there("localhost\n127.0.0.3\n",
                "-- sh -c 'trap \"echo heard; exit 0\" TERM; echo $RANK > " + folder_.path() +
                    "/up_$RANK; [ $RANK = 0 ] && { while [ ! -e " + folder_.path() +
                    "/up_1 ]; do sleep 0.01; done; kill -TERM $PPID; }; "
                    "while :; do sleep 0.01; done'");
  EXPECT_TRUE(ran.has("[worker 1] heard")) << ran.text;
  EXPECT_EQ(ran.code % 143, 0) << ran.text;
}

TEST_F(OverSsh, MoreTasksThanSlotsAreRefused) {
  const Ran ran = run_there("127.0.0.2\n127.0.0.3\n", "--workers 3 -- true");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(ran.says("expected at least 3 slots")) << ran.text;
  const Ran flag = run_there("-oProxyCommand=true\n", "-- true");
  EXPECT_EQ(flag.code, 1);
  EXPECT_TRUE(flag.says("expected a host as 'name slots=2'")) << flag.text;
}

TEST_F(OverSsh, ALineForEachSlotIsAddedUpAndWhatIsNoFieldIsRefused) {
  const Ran lines = run_there("127.0.0.2\n127.0.0.3 slots=1 max_slots=9\n127.0.0.2\n",
                              "-- sh -c 'echo $RANK $GROUP_RANK $LOCAL_RANK'");
  EXPECT_EQ(lines.code, 0) << lines.text;
  EXPECT_TRUE(lines.has("[worker 1] 1 0 1") && lines.has("[worker 2] 2 1 0")) << lines.text;
  // They would be one slot each.
  for (const char* line : {"127.0.0.2 slot=2\n", "127.0.0.2 slots = 2\n", "127.0.0.2 2\n"}) {
    const Ran ran = run_there(line, "-- true");
    EXPECT_EQ(ran.code, 1) << line << ran.text;
    EXPECT_TRUE(ran.says("expected a host as 'name slots=2'")) << line << ran.text;
  }
}

TEST_F(OverSsh, AHostThatCannotBeReachedIsNamed) {
  const Ran ran = run("--hosts 127.0.0.2 --ssh /bin/false -- true");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(ran.says("expected cohortrun on 127.0.0.2")) << ran.text;
}

class AmongNodes : public ::testing::Test {
 protected:
  // As if each stood on a host of its own.
  std::string node(const std::string& flags, const std::string& program) const {
    return str_cat(COHORTRUN, " --nnodes 2 --rdzv-endpoint 127.0.0.1:", port_, " ", flags, " -- ",
                   program);
  }
  const int port_ = cohort::testing::free_ports(1)[0];
};

TEST_F(AmongNodes, EachOfThemStartsItsPartOfOneJob) {
  const std::string program =
      "sh -c 'echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $GROUP_RANK; "
      "echo \"$COHORT_RUN_ID\" >&2'";
  const Ran ran =
      run_shell(str_cat(node("--node-rank 1 --nproc-per-node 1", program), " & ",
                        node("--node-rank 0 --nproc-per-node 2", program), " && wait $!"));
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.has("[worker 0] 0 of 3, 0 of 2 on 0")) << ran.text;
  EXPECT_TRUE(ran.has("[worker 1] 1 of 3, 1 of 2 on 0")) << ran.text;
  EXPECT_TRUE(ran.has("[worker 2] 2 of 3, 0 of 1 on 1")) << ran.text;
  std::string id;
  for (const std::string& line : ran.lines) {
    if (line.rfind("[worker 0] none_", 0) == 0) id = line.substr(11);
  }
  EXPECT_FALSE(id.empty()) << ran.text;
  EXPECT_TRUE(ran.has("[worker 2] " + id)) << "all know the job by one name: " << ran.text;
}

TEST_F(AmongNodes, WithoutRanksTheyAreNumberedAsTheyCome) {
  const std::string both = node("", "sh -c 'echo rank $RANK; echo \"$TF_CONFIG\" >&2'");
  const Ran ran = run_shell(str_cat(both, " & ", both, " && wait $!"));
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.has("[worker 0] rank 0")) << ran.text;
  EXPECT_TRUE(ran.has("[worker 1] rank 1")) << ran.text;
}

TEST_F(AmongNodes, AFailureOnOneEndsAndRestartsTheOther) {
  const std::string program =
      "sh -c 'echo attempt $COHORT_RESTART_COUNT of $RANK; [ $COHORT_RESTART_COUNT = 1 ] && exit "
      "0; "
      "[ $RANK = 0 ] && exec sleep 1000; echo why >&2; exit 140'";
  const Ran ran =
      run_shell(str_cat(node("--node-rank 1 --max-restarts 1", program), " & ",
                        node("--node-rank 0 --max-restarts 1", program), " && wait $!"));
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.has("[worker 0] attempt 1 of 0")) << ran.text;
  EXPECT_TRUE(ran.has("[worker 1] attempt 1 of 1")) << ran.text;
  EXPECT_TRUE(ran.says("worker 1 on 127.0.0.1 ended with exit code 140")) << ran.text;
  EXPECT_TRUE(ran.has("cohortrun:   why")) << ran.text;
}

// Both end with the job's exit code.
TEST_F(AmongNodes, AllEndWithTheJobsExitCode) {
  const std::string program = "sh -c '[ $RANK = 1 ] && exit 33; exec sleep 1000'";
  const Ran ran =
      run_shell(str_cat(node("--node-rank 1", program), " & ", node("--node-rank 0", program),
                        "; echo head $?; wait $!; "
                        "echo other $?"));
  EXPECT_TRUE(ran.has("head 33")) << ran.text;
  EXPECT_TRUE(ran.has("other 33")) << ran.text;
}

// The head is killed: the others' tasks do not live on.
TEST_F(AmongNodes, WithoutItsHeadANodeEndsItsTasks) {
  const std::string program =
      "sh -c '[ $RANK = 0 ] && kill -9 $PPID; trap \"echo ended; exit 0\" TERM; "
      "while :; do sleep 0.01; done'";
  const Ran ran =
      run_shell(str_cat(node("--node-rank 0 --grace 5", program), " & ",
                        node("--node-rank 1 --grace 5", program), "; echo other $?; wait"));
  EXPECT_TRUE(ran.has("other 129")) << ran.text;
  EXPECT_TRUE(ran.says("the head of the job is gone")) << ran.text;
}

// A pod that Kubernetes starts again finds its place again.
TEST_F(AmongNodes, ANodeThatComesBackTakesPartInTheNextAttempt) {
  const std::string program =
      "sh -c '[ $COHORT_RESTART_COUNT = 1 ] && { echo again $RANK; exit 0; }; "
      "[ $RANK = 1 ] && kill -9 $PPID; exec sleep 1000'";
  const std::string other = node("--node-rank 1 --max-restarts 1", program);
  const Ran ran =
      run_shell(str_cat("(", other, "; ", other, ") & ",
                        node("--node-rank 0 --max-restarts 1", program), " && wait $!"));
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.has("[worker 0] again 0")) << ran.text;
  EXPECT_TRUE(ran.has("[worker 1] again 1")) << ran.text;
}

TEST_F(AmongNodes, ANodeOfAnotherJobIsRefusedAndOneThatDoesNotComeIsCounted) {
  const Ran ran =
      run_shell(str_cat(node("--node-rank 1 --rdzv-id theirs", "echo started"), "& ",
                        node("--node-rank 0 --rdzv-id ours --rdzv-timeout 6", "echo started"),
                        "; echo head $?; wait $!; echo other $?"));
  EXPECT_TRUE(ran.says("expected 2 nodes within 6 s (--rdzv-timeout), got 1")) << ran.text;
  EXPECT_TRUE(ran.says("expected a node of job \"ours\"")) << ran.text;
  EXPECT_TRUE(ran.has("head 1")) << ran.text;
  EXPECT_TRUE(ran.has("other 1")) << ran.text;
  EXPECT_FALSE(ran.says("started")) << ran.text;
}

TEST_F(AmongNodes, AnotherNumberOfNodesIsRefused) {
  const Ran ran = run_shell(str_cat(COHORTRUN, " --nnodes 3 --rdzv-endpoint 127.0.0.1:", port_,
                                    " --node-rank 1 -- echo started & ",
                                    node("--node-rank 0 --rdzv-timeout 6", "echo started"),
                                    "; echo head $?; wait $!; echo other $?"));
  EXPECT_TRUE(ran.says("expected --nnodes 2, as the first node has it, got 3")) << ran.text;
  EXPECT_TRUE(ran.has("head 1") && ran.has("other 1")) << ran.text;
  EXPECT_FALSE(ran.says("started")) << ran.text;
}

// Nobody reads what the second one writes before the job is over.
TEST_F(AmongNodes, WhatWaitsForAReaderIsNotLostWithTheNode) {
  const Folder folder;
  const std::string program = "sh -c 'yes | head -n 50000'";
  const Ran ran = run_shell(str_cat("mkfifo ", folder.path(), "/pipe; exec 3<>", folder.path(),
                                    "/pipe; ", node("--node-rank 1", program), " >&3 2>&1 & ",
                                    node("--node-rank 0", program),
                                    " 3<&- > /dev/null; echo head $?; "
                                    "head -n 50000 <&3 | sort | uniq -c; wait; echo over"));
  EXPECT_TRUE(ran.has("head 0")) << ran.text;
  EXPECT_TRUE(ran.says("50000 [worker 1] y")) << ran.text;
  EXPECT_TRUE(ran.has("over")) << ran.text;
}

// Whoever connects and talks nonsense does not disturb the job.
TEST_F(AmongNodes, StrangersAtTheDoorAreTurnedAway) {
  const std::string program = "sh -c 'echo rank $RANK'";
  const Ran ran = run_shell(
      str_cat(node("--node-rank 0", program),
              " & head=$!; bash -c 'until exec 3<>/dev/tcp/127.0.0.1/", port_,
              "; do sleep 0.05; done 2>/dev/null; printf \"GET / HTTP/1.1\\r\\n\\r\\n\" >&3; "
              "cat <&3 >/dev/null; exec 4<>/dev/tcp/127.0.0.1/",
              port_, "; printf \"H 2\\n{}\" >&4; cat <&4'; ", node("--node-rank 1", program),
              " && wait $head"));
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.says("expected a cohortrun's greeting")) << ran.text;
  EXPECT_TRUE(ran.says("[worker 1] rank 1")) << ran.text;
}

}  // namespace
