// SPDX-License-Identifier: Apache-2.0
//
// Messages over MPI: programs that mpirun starts.
#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/testing/ports.h"
#include "cohort/testing/process.h"
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

}  // namespace
