// SPDX-License-Identifier: Apache-2.0
//
// Jobs of real processes that are killed and started again: they end with the bits of one that
// never was.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cohort/testing/process.h"
#include "tests/multi_worker/finished.h"

namespace {

using cohort::testing::Process;

class Restart : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "restart_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// One start of the job; `fault`: "die 1 5", or "PLACE=kill#2", a failpoint.
  Finished start(int workers, const std::string& style, const std::string& fault = {}) const {
    std::vector<std::string> command = {
        COHORTRUN, "--grace", "5",   "--workers",        std::to_string(workers),
        "--",      PROGRAM,   style, folder_ + "/backup"};
    std::vector<std::string> environment = {"COHORT_MIN_LOG_LEVEL=1"};
    if (fault.find('=') != std::string::npos) {
      environment.push_back("COHORT_FAILPOINTS=" + fault);
    } else {
      std::istringstream words(fault);
      for (std::string word; words >> word;) command.push_back(word);
    }
    Process job(command, environment);
    const int code = job.wait(std::chrono::seconds(100));
    return {code, job.text()};
  }
  std::vector<std::string> backups() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      if (entry.path().filename() == "cohort.json") out.push_back(entry.path());
    }
    return out;
  }

  std::string folder_;
};

// 10 steps an epoch, a backup every third: kills ahead of the first one, between two, in one, at
// the end of an epoch; of the chief and of another worker; and again and again.
TEST_F(Restart, A2_AFitThatIsKilledHasTheSameBits) {
  const Finished whole = start(2, "fit");
  ASSERT_EQ(whole.code, 0) << whole.text;
  const std::vector<std::string> expected = whole.lines("[worker 0] weights ");
  ASSERT_EQ(expected.size(), 1U) << whole.text;
  EXPECT_TRUE(backups().empty()) << "deleted at the end";
  const std::vector<std::vector<std::string>> kills = {
      {"die 1 2"},
      {"die 0 5"},
      {"die 1 10"},
      {"checkpoint.made=kill#2@1"},           // nothing of its own is written
      {"checkpoint.shard_written=kill#2@1"},  // in the first backup
      {"checkpoint.shard_written=kill#5@0", "checkpoint.manifest_written=kill#2"},
      {"checkpoint.flushed=kill#2"},
      {"manager.announced=kill"},
      {"die 1 4", "manager.named=kill", "die 0 9"}};
  for (const std::vector<std::string>& one_after_the_other : kills) {
    for (const std::string& kill : one_after_the_other) {
      const Finished killed = start(2, "fit", kill);
      EXPECT_EQ(killed.code, 137) << kill << "\n" << killed.text;
    }
    const Finished finished = start(2, "fit");
    ASSERT_EQ(finished.code, 0) << finished.text;
    EXPECT_EQ(finished.lines("[worker 0] weights "), expected) << one_after_the_other.back() << "\n"
                                                               << finished.text;
    EXPECT_EQ(finished.lines("[worker 0] loss "), whole.lines("[worker 0] loss "));
    EXPECT_EQ(finished.lines("[worker 1] loss "), whole.lines("[worker 1] loss "));
  }
}

// Each worker has a file of its own, and so a position of its own.
TEST_F(Restart, A2_AFitOfFilesThatIsKilledHasTheSameBits) {
  for (const int file : {0, 1}) {
    std::ofstream out(folder_ + "/backup." + std::to_string(file) + ".csv");
    const int rows = file == 0 ? 150 : 90;  // 10 steps, and 6
    for (int i = 0; i < rows; ++i) out << 0.01 * i << "," << file << "," << i % 10 << "\n";
  }
  const Finished whole = start(2, "files");
  ASSERT_EQ(whole.code, 0) << whole.text;
  for (const std::string kill : {"die 1 5", "die 0 14"}) {
    EXPECT_EQ(start(2, "files", kill).code, 137) << kill;
    const Finished fewer = start(1, "files");
    EXPECT_EQ(fewer.code, 1) << fewer.text;
    EXPECT_NE(fewer.text.find("as many workers as the backup has, 2"), std::string::npos)
        << fewer.text;
    const Finished finished = start(2, "files");
    ASSERT_EQ(finished.code, 0) << finished.text;
    for (const std::string worker : {"[worker 0] ", "[worker 1] "}) {
      EXPECT_EQ(finished.lines(worker + "weights "), whole.lines(worker + "weights ")) << kill;
      EXPECT_EQ(finished.lines(worker + "loss "), whole.lines(worker + "loss ")) << kill;
    }
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/backup")) << "deleted at the end";
  }
}

// SIGTERM on one worker: both save behind the same step, and end with a code that Kubernetes
// restarts.
TEST_F(Restart, SigtermOnOneWorkerEndsAllBehindAStep) {
  for (const std::string style : {"fit", "loop"}) {
    const Finished whole = start(2, style);
    ASSERT_EQ(whole.code, 0) << whole.text;
    const std::vector<std::string> expected = whole.lines("[worker 0] weights ");
    ASSERT_EQ(expected.size(), 1U) << whole.text;
    for (const std::string fault : {"term 1 4", "term 0 7"}) {
      const Finished ended = start(2, style, fault);
      EXPECT_EQ(ended.code, 143) << ended.text;
      EXPECT_EQ(backups().size(), 1U);
      const Finished finished = start(2, style);
      EXPECT_EQ(finished.code, 0) << finished.text;
      EXPECT_EQ(finished.lines("[worker 0] weights "), expected) << style << fault << finished.text;
      std::filesystem::remove_all(folder_ + "/backup");
    }
  }
}

// Both write into one checkpoint; where the other has not the chief's disk the chief writes all,
// and what comes of it is the same.
TEST_F(Restart, WorkersWriteOneCheckpointOnOneDiskOrTwo) {
  const auto files = [&] {
    int count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      if (entry.path().extension() == ".safetensors") ++count;
    }
    return count;
  };
  const Finished whole = start(2, "loop");
  ASSERT_EQ(whole.code, 0) << whole.text;
  std::filesystem::remove_all(folder_ + "/backup");
  EXPECT_EQ(start(2, "loop", "term 1 4").code, 143);
  EXPECT_GT(files(), 2);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a process a disk of its own";
  std::filesystem::remove_all(folder_ + "/backup");
  const auto start_apart = [&](const std::string& fault) {
    const std::string program = std::string(PROGRAM) + " loop " + folder_ + "/backup " + fault;
    Process job({COHORTRUN, "--grace", "5", "--workers", "2", "--", "sh", "-c",
                 "if [ $RANK = 0 ]; then exec " + program +
                     "; fi; exec unshare -m sh -c 'mount -t "
                     "tmpfs none " +
                     folder_ + " && exec " + program + "'"},
                {"COHORT_MIN_LOG_LEVEL=0"});
    const int code = job.wait(std::chrono::seconds(100));
    return Finished{code, job.text()};
  };
  const Finished ended = start_apart("term 1 4");
  EXPECT_EQ(ended.code, 143) << ended.text;
  EXPECT_EQ(files(), 1);
  EXPECT_NE(ended.text.find("worker 1 finds no folder"), std::string::npos) << ended.text;
  const Finished finished = start_apart("");
  EXPECT_EQ(finished.code, 0) << finished.text;
  EXPECT_EQ(finished.lines("[worker 0] weights "), whole.lines("[worker 0] weights "));
}

// Nobody is killed: the survivor's own exit code says that another start may help.
TEST_F(Restart, A3_AJobWhoseWorkerIsStoppedIsStartedAgain) {
  const Finished whole = start(2, "fit");
  ASSERT_EQ(whole.code, 0) << whole.text;
  Process job({COHORTRUN, "--grace", "1", "--workers", "2", "--max-restarts", "1",
               "--restart-policy", "exit-code", "--", PROGRAM, "fit", folder_ + "/backup"},
              {"COHORT_MIN_LOG_LEVEL=1", "COHORT_HEARTBEAT_MS=200", "COHORT_LEASE_MS=2000",
               "COHORT_FAILPOINTS=update.before_commit=stop#12@1"});
  const int code = job.wait(std::chrono::seconds(100));
  const Finished finished{code, job.text()};
  EXPECT_EQ(finished.code, 0) << finished.text;
  EXPECT_NE(finished.text.find("ended with exit code 134"), std::string::npos) << finished.text;
  EXPECT_EQ(finished.lines("[worker 0] weights "), whole.lines("[worker 0] weights "))
      << finished.text;
}

TEST_F(Restart, AnEvaluatorFollowsTheWorkers) {
  Process job({COHORTRUN, "--grace", "5", "--workers", "2", "--evaluator", "--", PROGRAM,
               "evaluate", folder_ + "/run"},
              {"COHORT_MIN_LOG_LEVEL=1"});
  EXPECT_EQ(job.wait(std::chrono::seconds(100)), 0) << job.text();
  const std::string text = job.text();
  const auto number_behind = [&](const std::string& what) {
    const std::size_t at = text.find(what);
    return at == std::string::npos ? "nothing" : text.substr(at + what.size(), 6);
  };
  EXPECT_EQ(number_behind("[evaluator 0] evaluated "), number_behind("[worker 0] trained "))
      << text;
}

// As many steps in all, whatever the workers of each start.
TEST_F(Restart, AnotherNumberOfWorkersGoesOn) {
  ASSERT_EQ(start(2, "loop", "term 1 4").code, 143);
  const Finished more = start(3, "loop", "term 2 5");
  EXPECT_EQ(more.code, 143) << more.text;
  EXPECT_NE(more.text.find("[worker 2] begins at run 4"), std::string::npos) << more.text;
  const Finished one = start(1, "loop");
  EXPECT_EQ(one.code, 0) << one.text;
  EXPECT_NE(one.text.find("begins at run 9"), std::string::npos) << one.text;
}

}  // namespace
