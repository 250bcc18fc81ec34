// SPDX-License-Identifier: Apache-2.0
//
// What tasks are given to prove themselves with, and who is let in to a job's nodes.
#include <gtest/gtest.h>

#include "apps/cohortrun/test_run.h"
#include "cohort/testing/ports.h"

namespace {

using cohort::str_cat;
using cohortrun::testing::Folder;
using cohortrun::testing::Ran;
using cohortrun::testing::run;
using cohortrun::testing::run_shell;

std::string line_after(const Ran& ran, const std::string& beginning) {
  for (const std::string& line : ran.lines) {
    if (line.rfind(beginning, 0) == 0) return line.substr(beginning.size());
  }
  return "none in: " + ran.text;
}

TEST(CohortrunSecurity, F3_EachAttemptHasATokenOfItsOwnInAFileThatIsGoneAtTheEnd) {
  const Ran ran =
      run("--workers 2 --max-restarts 1 -- sh -c 'echo token $(cat $COHORT_JOB_TOKEN_FILE); "
          "echo file $COHORT_JOB_TOKEN_FILE; echo job $COHORT_JOB_ID; "
          "echo mode $(stat -c %a%U $COHORT_JOB_TOKEN_FILE $(dirname $COHORT_JOB_TOKEN_FILE)); "
          "echo store $COHORT_STORE; echo in ${COHORT_JOB_TOKEN-none}; "
          "tr \"\\0\" \" \" < /proc/$PPID/cmdline; echo; exit $((1 - COHORT_RESTART_COUNT))'");
  EXPECT_EQ(ran.code, 0) << ran.text;
  std::vector<std::string> tokens;
  for (const std::string& line : ran.lines) {
    if (line.rfind("[worker 0] token ", 0) == 0) tokens.push_back(line.substr(17));
  }
  ASSERT_EQ(tokens.size(), 2U) << ran.text;
  EXPECT_EQ(tokens[0].size(), 64U) << tokens[0];
  EXPECT_NE(tokens[0], tokens[1]) << "a process of the first attempt would know the second's";
  EXPECT_TRUE(ran.has("[worker 1] token " + tokens[0])) << "all tasks have one: " << ran.text;
  EXPECT_TRUE(ran.has("[worker 0] in none")) << ran.text;
  EXPECT_NE(line_after(ran, "[worker 0] mode "), "");
  EXPECT_EQ(line_after(ran, "[worker 0] mode ").substr(0, 3), "600") << ran.text;
  EXPECT_NE(line_after(ran, "[worker 0] mode ").find("700"), std::string::npos) << ran.text;
  EXPECT_EQ(line_after(ran, "[worker 0] store ").rfind("localhost:", 0), 0U) << ran.text;
  EXPECT_FALSE(std::filesystem::exists(line_after(ran, "[worker 0] file "))) << ran.text;
  // Of the first attempt and the second.
  EXPECT_NE(line_after(ran, "[worker 0] job ").find(".0"), std::string::npos) << ran.text;
  EXPECT_TRUE(ran.says(".1\n")) << ran.text;
  for (const std::string& line : ran.lines) {
    if (line.find(" token ") != std::string::npos) continue;
    EXPECT_EQ(line.find(tokens[0]), std::string::npos) << line;
  }
}

// What a cohortrun leaves that is killed, and that of one that lives.
TEST(CohortrunSecurity, SecretsOfOneThatWasKilledAreGoneWithTheNextStart) {
  Folder folder;
  const std::string at = folder.path();
  // Again where another test's cohortrun, which starts meanwhile, has cleaned up.
  Ran killed;
  for (int i = 0; i < 5 && !killed.has("is left"); ++i) {
    killed = run_shell(str_cat(COHORTRUN, " --workers 1 -- sh -c 'echo $COHORT_JOB_TOKEN_FILE > ",
                               at, "/left; kill -9 $PPID'; echo code $?; test -s $(cat ", at,
                               "/left) && echo is left"));
    EXPECT_TRUE(killed.has("code 137")) << killed.text;
  }
  ASSERT_TRUE(killed.has("is left")) << killed.text;
  // One that goes on meanwhile.
  const Ran next = run_shell(str_cat(
      COHORTRUN, " --workers 1 --prefix none -- sh -c 'echo $COHORT_JOB_TOKEN_FILE > ", at,
      "/kept.new; mv ", at, "/kept.new ", at, "/kept; until [ -e ", at,
      "/end ]; do sleep 0.01; done; test -s $COHORT_JOB_TOKEN_FILE && echo is kept' & until [ -e ",
      at, "/kept ]; do sleep 0.01; done; ", COHORTRUN, " --workers 1 -- true; echo code $?; touch ",
      at, "/end; wait $!; echo first $?"));
  EXPECT_TRUE(next.has("code 0") && next.has("first 0") && next.has("is kept")) << next.text;
  for (const char* each : {"left", "kept"}) {
    std::string token = folder.read(each);
    token.erase(token.find_last_not_of('\n') + 1);
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(token).parent_path())) << token;
  }
}

TEST(CohortrunSecurity, AStoreListensForAllTasksOfAnAttempt) {
  const Ran ran =
      run("--workers 2 -- bash -c 'exec 3<>/dev/tcp/${COHORT_STORE/:/\\/} && echo open'");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.has("[worker 1] open")) << ran.text;
  const Ran own =
      run_shell("COHORT_STORE=127.0.0.1:7 " COHORTRUN " --workers 2 -- sh -c 'echo $COHORT_STORE'");
  EXPECT_TRUE(own.has("[worker 1] 127.0.0.1:7")) << "a store that the user keeps: " << own.text;
}

TEST(CohortrunSecurity, TasksGetCertificatesForTheirHostWhereTlsIsAskedFor) {
  const char* program =
      " -- sh -c 'openssl verify -CAfile $COHORT_TLS_AUTHORITY -purpose sslserver "
      "-verify_hostname localhost $COHORT_TLS_CERTIFICATE; stat -c %a $COHORT_TLS_KEY; "
      "openssl pkey -in $COHORT_TLS_KEY -noout && echo key; echo $COHORT_TLS_KEY >&2'";
  const Ran ran = run(str_cat("--workers 1 --tls --prefix none", program));
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_TRUE(ran.says("certificate.pem: OK")) << ran.text;
  EXPECT_TRUE(ran.has("600")) << ran.text;
  EXPECT_TRUE(ran.has("key")) << ran.text;
  EXPECT_FALSE(std::filesystem::exists(line_after(ran, "/dev/shm/"))) << ran.text;
  const Ran without = run("--workers 1 -- sh -c 'echo ${COHORT_TLS_KEY-none}'");
  EXPECT_TRUE(without.has("[worker 0] none")) << "on one host nobody listens: " << without.text;
}

TEST(CohortrunSecurity, BeyondThisHostTasksHaveCertificatesOrSayThatTheyNeedNone) {
  const std::string program = " -- sh -c 'echo ${COHORT_TLS_KEY:+with} ${COHORT_ALLOW_INSECURE-}'";
  const std::string far = "--workers 1 --local-addr 192.0.2.1 ";
  EXPECT_TRUE(run(far + program).has("[worker 0] with"));
  EXPECT_TRUE(run(far + "--allow-insecure" + program).has("[worker 0] 1"));
  const Ran both = run(far + "--tls --allow-insecure" + program);
  EXPECT_EQ(both.code, 1);
  EXPECT_TRUE(both.says("expected --tls or --allow-insecure, got both")) << both.text;
}

// By ssh's pipe, not on a command line.
TEST(CohortrunSecurity, OtherHostsGetTheSameTokenAndCertificatesOfTheirOwn) {
  Folder folder;
  const std::string ssh = folder.write("ssh",
                                       "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do case $1 in "
                                       "-o) shift;; esac; shift; done\nhost=$1; shift\necho \"$*\" "
                                       ">> $(dirname \"$0\")/called\nexec sh -c \"$*\"\n",
                                       /*is_program=*/true);
  const Ran ran = run(str_cat(
      "--hosts 127.0.0.2:1,127.0.0.3:1 --tls --ssh ", ssh,
      " -- sh -c 'echo token $(cat $COHORT_JOB_TOKEN_FILE); openssl x509 -noout -ext "
      "subjectAltName -in $COHORT_TLS_CERTIFICATE; openssl verify -CAfile $COHORT_TLS_AUTHORITY "
      "$COHORT_TLS_CERTIFICATE'"));
  EXPECT_EQ(ran.code, 0) << ran.text;
  const std::string token = line_after(ran, "[worker 0] token ");
  EXPECT_EQ(token.size(), 64U) << ran.text;
  EXPECT_TRUE(ran.has("[worker 1] token " + token)) << ran.text;
  EXPECT_TRUE(ran.says("[worker 0]     IP Address:127.0.0.2")) << ran.text;
  EXPECT_TRUE(ran.says("[worker 1]     IP Address:127.0.0.3")) << ran.text;
  EXPECT_EQ(folder.read("called").find(token), std::string::npos);
}

class NodesWithSecrets : public ::testing::Test {
 protected:
  std::string node(int rank, const std::string& token, const std::string& more = "") const {
    return str_cat(token.empty() ? "" : "COHORT_JOB_TOKEN=", token, token.empty() ? "" : " ",
                   COHORTRUN, " --nnodes 2 --rdzv-endpoint 127.0.0.1:", port_, " --node-rank ",
                   rank, " ", more, " -- sh -c 'echo rank $RANK; cat $COHORT_JOB_TOKEN_FILE >&2'");
  }
  Ran run_both(const std::string& first, const std::string& second) const {
    return run_shell(str_cat(node(1, second), "& ", node(0, first, "--rdzv-timeout 6"),
                             "; echo head $?; wait $!; echo other $?"));
  }
  const int port_ = cohort::testing::free_ports(1)[0];
};

TEST_F(NodesWithSecrets, F3_MeetByOneTokenWhichNobodyReadsOnTheWay) {
  const std::string token = "0123456789abcdef-the-jobs-own";
  const Ran ran = run_both(token, token);
  EXPECT_TRUE(ran.has("head 0") && ran.has("other 0")) << ran.text;
  EXPECT_TRUE(ran.has("[worker 0] rank 0") && ran.has("[worker 1] rank 1")) << ran.text;
  EXPECT_TRUE(ran.says("[worker 1] " + token)) << "tasks have it, too: " << ran.text;
}

TEST_F(NodesWithSecrets, F3_AnotherTokenIsTurnedAway) {
  const Ran ran = run_both("0123456789abcdef-one", "0123456789abcdef-another");
  EXPECT_TRUE(ran.says("a caller from 127.0.0.1 was turned away: TLS: ")) << ran.text;
  EXPECT_TRUE(ran.says("the head has not let this node in")) << ran.text;
  EXPECT_TRUE(ran.has("head 1")) << ran.text;
  EXPECT_FALSE(ran.has("other 0")) << ran.text;
  EXPECT_FALSE(ran.says("rank ") || ran.says("abcdef")) << ran.text;
}

TEST_F(NodesWithSecrets, F3_WithoutATokenNobodyComesIn) {
  const Ran ran = run_both("0123456789abcdef-one", "");
  EXPECT_TRUE(ran.says("COHORT_JOB_TOKEN_FILE")) << ran.text;
  EXPECT_TRUE(ran.has("head 1") && !ran.has("other 0")) << ran.text;
  EXPECT_FALSE(ran.says("[worker")) << ran.text;
  const Ran open = run_both("", "0123456789abcdef-one");
  EXPECT_TRUE(open.has("head 1") && !open.has("other 0")) << open.text;
  EXPECT_FALSE(open.says("[worker")) << open.text;
}

TEST(CohortrunSecurity, AShortTokenIsNamedButNotShown) {
  const Ran ran = run_shell("COHORT_JOB_TOKEN=tooshort " COHORTRUN " --workers 1 -- true");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(ran.says("COHORT_JOB_TOKEN")) << ran.text;
  EXPECT_FALSE(ran.says("tooshort")) << ran.text;
}

}  // namespace
