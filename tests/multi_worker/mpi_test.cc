// SPDX-License-Identifier: Apache-2.0
//
// Messages over MPI: programs that mpirun starts.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/testing/ports.h"
#include "cohort/testing/process.h"
#include "tests/faults/hosts.h"
#include "tests/multi_worker/finished.h"

namespace {

using cohort::str_cat;

Finished run(const std::string& command) {
  cohort::testing::Process process({"sh", "-c", command});
  Finished out;
  out.code = process.wait(std::chrono::seconds(100));
  out.text = process.text();
  return out;
}

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string(MPIRUN).empty())
      GTEST_SKIP() << "no MPI: libopenmpi-dev and openmpi-bin, when this was configured";
  }
  // Not more cores than there are, and none of its own: it shares the machine with other tests.
  static std::string mpirun(int processes, const std::string& flags = "") {
    return str_cat("COHORT_MIN_LOG_LEVEL=1 " MPIRUN " --oversubscribe --bind-to none ",
                   ::geteuid() == 0 ? "--allow-run-as-root " : "", flags, "-np ", processes, " ");
  }
  static constexpr const char* kCounted =
      "--mca pml_monitoring_enable 2 --mca pml_monitoring_enable_output 1 ";
  static std::string addresses(int count) {
    std::string out;
    for (const int port : cohort::testing::free_ports(count)) {
      out += str_cat(out.empty() ? "" : ",", "127.0.0.1:", port);
    }
    return out;
  }
};

TEST_F(Mpi, CarriesWhatEveryTransportPromises) {
  for (const int ranks : {2, 3}) {
    const Finished ran =
        run(str_cat(mpirun(ranks, kCounted), CONTRACT " contract ", addresses(ranks)));
    EXPECT_EQ(ran.code, 0) << ran.text;
    EXPECT_EQ(ran.lines("rank ").size(), static_cast<std::size_t>(ranks)) << ran.text;
    // What each rank has sent to another one, as MPI has counted it.
    const std::vector<std::string> sent = ran.lines("E\t");
    EXPECT_EQ(sent.size(), static_cast<std::size_t>(ranks * (ranks - 1))) << ran.text;
    for (const std::string& each : sent) {
      std::istringstream words(each.substr(1));
      int64_t from = 0;
      int64_t to = 0;
      int64_t bytes = 0;
      words >> from >> to >> bytes;
      EXPECT_GT(bytes, 1 << 20) << each;
    }
  }
}

// Its library ends the job.
TEST_F(Mpi, A1_ARankThatDiesEndsTheJob) {
  const Finished ran = run(str_cat(mpirun(3), CONTRACT " die ", addresses(3)));
  EXPECT_GE(ran.code, 128) << ran.text;
}

// The others end without it, and mpirun ends it, too.
TEST_F(Mpi, ARankThatIsStoppedKeepsNobody) {
  const Finished ran = run(str_cat(mpirun(3), CONTRACT " stop ", addresses(3)));
  EXPECT_EQ(ran.code, 1) << ran.text;
  EXPECT_TRUE(ran.says("rank 1 (")) << ran.text;
}

TEST_F(Mpi, MayEndBeforeItsCommunicators) {
  const Finished ran = run(str_cat(mpirun(2), CONTRACT " end ", addresses(2)));
  EXPECT_EQ(ran.code, 0) << ran.text;
}

// Which MPI itself answers by ending the process.
TEST_F(Mpi, HasOurErrorsWhenItHasEnded) {
  const Finished ran = run(str_cat(mpirun(2), CONTRACT " over -"));
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_EQ(ran.lines("rank ").size(), 2U) << ran.text;
}

// As ranks of an mpirun that is another MPI's.
TEST_F(Mpi, AWorkerThatItHasNotStartedDoesNotTrainAlone) {
  const Finished ran = run(PROGRAM " loop mpi");
  EXPECT_EQ(ran.code, 1) << ran.text;
  EXPECT_TRUE(ran.says("expected mpirun to have started this process")) << ran.text;
  EXPECT_TRUE(ran.lines("weights ").empty()) << ran.text;
}

TEST_F(Mpi, SeveralProcessesAreNotEachOneWorker) {
  const std::string config = R"(TF_CONFIG='{"cluster": {"worker": ["localhost:1"]}, )"
                             R"("task": {"type": "worker", "index": 0}}' )";
  const Finished ran = run(str_cat(config, mpirun(2), PROGRAM " loop mpi"));
  EXPECT_EQ(ran.code, 1) << ran.text;
  EXPECT_TRUE(ran.says("of 2 that were started together")) << ran.text;
  EXPECT_TRUE(ran.lines("weights ").empty()) << ran.text;
}

TEST_F(Mpi, OneWorkerTrainsAlone) {
  const Finished plain = run(PROGRAM " loop mirrored 1");
  const Finished ran = run(str_cat(mpirun(1), PROGRAM " loop mpi"));
  EXPECT_EQ(ran.code, 0) << ran.text;
  ASSERT_EQ(plain.lines("weights ").size(), 1U) << plain.text;
  EXPECT_EQ(ran.lines("weights "), plain.lines("weights "));
}

TEST_F(Mpi, ProcessesThatItHasNotStartedAreRefused) {
  const std::string at = addresses(2);
  const Finished ran =
      run(str_cat(CONTRACT " contract ", at, " 1 & " CONTRACT " contract ", at, " 0; wait $!"));
  EXPECT_EQ(ran.code, 1) << ran.text;
  EXPECT_TRUE(ran.says("expected mpirun to have started the 2 workers")) << ran.text;
}

TEST_F(Mpi, AProgramHasTheBitsOfReplicas) {
  const Finished one = run(PROGRAM " loop mirrored 2");
  const Finished two = run(str_cat(mpirun(2), PROGRAM " loop mpi"));
  EXPECT_EQ(two.code, 0) << two.text;
  const std::vector<std::string> expected = one.lines("weights ");
  ASSERT_EQ(expected.size(), 1U) << one.text;
  const std::vector<std::string> got = two.lines("weights ");
  ASSERT_EQ(got.size(), 2U) << two.text;
  for (const std::string& weights : got) EXPECT_EQ(weights, expected[0]);
}

// A command as one word for each of its parts.
std::string quoted(const std::vector<std::string>& command) {
  std::string out;
  for (const std::string& word : command) out += str_cat("'", word, "' ");
  return out;
}

// Where mpirun would go by ssh it goes into the other host's namespace.
TEST_F(Mpi, CarriesBetweenHosts) {
  if (!cohort::proof::Hosts::can_be_made()) GTEST_SKIP() << "needs root, ip and nft";
  const cohort::proof::Hosts hosts(2);
  std::string folder = (std::filesystem::temp_directory_path() / "cohort_mpi_XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string agent = folder + "/agent";
  std::ofstream(agent) << "#!/bin/sh\nshift\nexec "
                       << quoted(hosts.on(1, {"unshare", "-u", "sh", "-c"}))
                       << "\"hostname node1; $*\"\n";
  std::filesystem::permissions(agent, std::filesystem::perms::owner_all);
  const std::string flags =
      str_cat("--mca plm_rsh_agent ", agent,
              " --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24",
              " -H 10.77.0.1:1,10.77.0.2:1 -x MASTER_ADDR=10.77.0.1 -x COHORT_ALLOW_INSECURE=1 ");
  const std::string command = str_cat("hostname node0; ", mpirun(2, flags), PROGRAM " loop mpi");
  const Finished two = run(quoted(hosts.on(0, {"unshare", "-u", "sh", "-c", command})));
  EXPECT_EQ(two.code, 0) << two.text;
  std::filesystem::remove_all(folder);
  const std::vector<std::string> expected = run(PROGRAM " loop mirrored 2").lines("weights ");
  ASSERT_EQ(expected.size(), 1U);
  EXPECT_EQ(two.lines("weights "), std::vector<std::string>(2, expected[0])) << two.text;
}

}  // namespace
