// SPDX-License-Identifier: Apache-2.0
//
// The same program in several real processes and in one: the same bits. And what the others say
// when one of them dies or fails.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "cohort/testing/process.h"

namespace {

struct Output {
  int code = -1;
  std::string text = {};
  /// The lines that begin so, without that.
  std::vector<std::string> lines(const std::string& prefix) const {
    std::vector<std::string> out;
    std::istringstream all(text);
    for (std::string line; std::getline(all, line);) {
      if (line.rfind(prefix, 0) == 0) out.push_back(line.substr(prefix.size()));
    }
    return out;
  }
  /// What all replicas have in common, and what is this one's.
  std::vector<std::string> lines_of_replica(const std::string& replica) const {
    std::vector<std::string> out = lines("");
    std::erase_if(out, [&](const std::string& line) {
      return line.find(" replica ") != std::string::npos &&
             line.find(" replica " + replica + " ") == std::string::npos;
    });
    return out;
  }
};

Output run(const std::string& command) {
  cohort::testing::Process process({"sh", "-c", command});
  Output out;
  out.code = process.wait(std::chrono::seconds(100));
  out.text = process.text();
  return out;
}

Output in_one_process(const std::string& style, int replicas) {
  return run(PROGRAM " " + style + " mirrored " + std::to_string(replicas));
}
Output in_processes(int workers, const std::string& arguments, const std::string& options = {}) {
  return run("COHORT_MIN_LOG_LEVEL=1 COHORT_STRAGGLER_RATIO=0 " COHORTRUN " --grace 5 --workers " +
             std::to_string(workers) + " " + options + " -- " PROGRAM " " + arguments);
}

class MultiWorker : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Styles, MultiWorker, ::testing::Values("loop", "fit", "convolutions"));

// cohortrun's certificates, its store and its token: the workers meet over TLS.
TEST(MultiWorkerTls, ProcessesHaveTheBitsOfReplicas) {
  const Output one = in_one_process("loop", 2);
  const Output two =
      run("COHORT_MIN_LOG_LEVEL=0 " COHORTRUN
          " --grace 5 --workers 2 --no-bind --tls --prefix none -- " PROGRAM " loop");
  EXPECT_EQ(two.code, 0) << two.text;
  EXPECT_NE(two.text.find(", over TLS; waiting for the others"), std::string::npos) << two.text;
  EXPECT_EQ(two.lines("weights ").size(), 2U) << two.text;
  for (const std::string& weights : two.lines("weights ")) {
    EXPECT_EQ(weights, one.lines("weights ").at(0));
  }
}

TEST_P(MultiWorker, ProcessesHaveTheBitsOfReplicas) {
  for (const int workers : {2, 3}) {
    const Output one = in_one_process(GetParam(), workers);
    ASSERT_EQ(one.code, 0) << one.text;
    const Output several = in_processes(workers, GetParam(), "--no-bind");
    ASSERT_EQ(several.code, 0) << several.text;
    for (int w = 0; w < workers; ++w) {
      const std::string worker = std::to_string(w);
      const std::vector<std::string> expected = one.lines_of_replica(worker);
      ASSERT_FALSE(expected.empty());
      EXPECT_EQ(several.lines("[worker " + worker + "] "), expected) << several.text;
    }
  }
}

TEST(MultiWorkerSeeds, WithoutOneAllShuffleAsWorker0) {
  const Output out = in_processes(3, "shuffle");
  ASSERT_EQ(out.code, 0) << out.text;
  const std::vector<std::string> first = out.lines("[worker 0] ");
  ASSERT_EQ(first.size(), 1U) << out.text;
  EXPECT_EQ(out.lines("[worker 1] "), first);
  EXPECT_EQ(out.lines("[worker 2] "), first);
  const Output again = in_processes(3, "shuffle");
  EXPECT_NE(again.lines("[worker 0] "), first) << "another order in every job";
}

TEST(MultiWorkerFaults, AWorkerThatDiesIsNamedByTheOthers) {
  const Output out = in_processes(2, "loop die 1 5");
  EXPECT_EQ(out.code, 137) << out.text;
  EXPECT_NE(out.text.find("cohortrun: worker 1 was killed by signal 9"), std::string::npos)
      << out.text;
  EXPECT_NE(out.text.find("rank 1 (localhost:"), std::string::npos) << out.text;
}

TEST(MultiWorkerFaults, AWorkersExceptionEndsAll) {
  const Output out = in_processes(2, "loop throw 1 5");
  EXPECT_EQ(out.code, 1) << out.text;
  EXPECT_NE(out.text.find("[worker 1] [program] the data of this step are bad"), std::string::npos)
      << out.text;
}

}  // namespace
