// SPDX-License-Identifier: Apache-2.0
//
// What the workers of a job see when one of them, or who keeps their store, goes silent: real
// processes, stopped by SIGSTOP, with the short leases of tests.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/cluster/store/store_server.h"
#include "cohort/testing/ports.h"
#include "cohort/testing/process.h"
#include "cohort/testing/workers.h"

namespace cohort {
namespace {

using internal::cluster::StoreServer;
using internal::rpc::Secret;

constexpr int kStartAgain = 134;
const std::vector<std::string> kProfile = {"COHORT_HEARTBEAT_MS=200", "COHORT_LEASE_MS=2000",
                                           "COHORT_MIN_LOG_LEVEL=1"};

// A job whose workers are processes of the test's own: nobody ends the others when one fails.
class Job {
 public:
  /// `environment`: of all; `own[w]`: of worker w beside it.
  Job(int workers, const std::vector<std::string>& program,
      const std::vector<std::string>& environment = {},
      std::vector<std::vector<std::string>> own = {}) {
    const auto addresses = testing::loopback_addresses(testing::free_ports(workers));
    own.resize(static_cast<std::size_t>(workers));
    for (int w = 0; w < workers; ++w) {
      std::vector<std::string> variables = kProfile;
      variables.insert(variables.end(), environment.begin(), environment.end());
      const auto& mine = own[static_cast<std::size_t>(w)];
      variables.insert(variables.end(), mine.begin(), mine.end());
      variables.push_back(testing::worker_config(addresses, w));
      std::vector<std::string> command = {PROGRAM};
      command.insert(command.end(), program.begin(), program.end());
      workers_.push_back(std::make_unique<testing::Process>(command, variables));
    }
  }
  testing::Process& operator[](int w) { return *workers_[static_cast<std::size_t>(w)]; }
  /// What worker w has written, but for what its steps say.
  std::string error_of(int w) {
    std::string out;
    std::istringstream lines((*this)[w].text());
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("step ", 0) != 0) out += line + "\n";
    }
    return out;
  }

  /// Worker w has ended by an error of these words, and has no result. `code`: 134 where another
  /// start may help (cohort/base/exit_code.h).
  void expect_error(int w, const std::vector<std::string>& words, int code = kStartAgain) {
    testing::Process& worker = (*this)[w];
    EXPECT_EQ(worker.wait(), code) << "worker " << w << ": " << worker.text();
    const std::string text = error_of(w);
    for (const std::string& word : words) {
      EXPECT_NE(text.find(word), std::string::npos) << word << " of worker " << w << " in " << text;
    }
    EXPECT_EQ(text.find("weights "), std::string::npos) << text;
  }

 private:
  std::vector<std::unique_ptr<testing::Process>> workers_;
};

// The number behind `what`; a huge one where it is not there.
double number_behind(const std::string& text, const std::string& what) {
  const std::size_t at = text.find(what);
  return at == std::string::npos ? 1e9 : std::stod(text.substr(at + what.size()));
}

// A3: a worker is stopped. When it goes on, it is told that it is out, and goes no further.
TEST(WorkerLiveness, A3_AStoppedWorkerIsNamedAndFenced) {
  Job job(3, {"loop", "stop", "1", "5"});
  for (const int w : {0, 2}) {
    job.expect_error(
        w, {"[liveness] worker 1 (localhost:", "has not been heard of for", "its lease is 2 s",
            "as of its last heartbeat it was between two operations, after step 5",
            "in strategy.run, step 6", "start the job again from its last checkpoint"});
    // Lease + 1 s.
    EXPECT_LT(number_behind(job.error_of(w), "has not been heard of for "), 3);
  }
  // It is told that it is out, with a code by which its launcher starts it again.
  job[1].signal(SIGCONT);
  job.expect_error(1, {"[liveness] worker 1 (localhost:"});
}

// The chief keeps the store: its silence is the store's, and the others have their own timers.
TEST(WorkerLiveness, A3_AStoppedChiefIsNamed) {
  Job job(3, {"loop", "stop", "0", "5"});
  for (const int w : {1, 2}) {
    job.expect_error(w, {"[liveness] worker ", "has had no answer for", "the lease is 2 s",
                         "which worker 0 keeps", "in strategy.run, step 6"});
  }
  job[0].signal(SIGCONT);
  job.expect_error(0, {"worker "});
}

TEST(WorkerLiveness, A1_AKilledWorkerIsNamed) {
  Job job(3, {"loop", "die", "1", "5"});
  for (const int w : {0, 2}) {
    job.expect_error(
        w, {"rank 1 (localhost:", ", worker 1) is gone", "Here it was in strategy.run, step 6",
            "its newest call", "start the job again from its last checkpoint"});
    const std::string text = job.error_of(w);
    EXPECT_LT(number_behind(text.substr(text.find("its newest call")), ", begun "), 2) << text;
  }
  EXPECT_EQ(job[1].wait(), 128 + SIGKILL);
}

// The launcher's store: while it lives a job trains to its end, and when it is gone every worker
// ends by itself.
TEST(WorkerLiveness, AJobUsesTheStoreThatItsLauncherKeeps) {
  const internal::rpc::RpcSecurity security = {.job = "job 7",
                                               .token = Secret("a token that nobody can guess")};
  auto store =
      std::make_optional<StoreServer>(internal::cluster::StoreServerOptions{.security = security});
  const std::vector<std::string> environment = {"COHORT_STORE=" + store->address(),
                                                "COHORT_JOB_ID=job 7",
                                                "COHORT_JOB_TOKEN=a token that nobody can guess"};
  Job whole(2, {"loop"}, environment);
  for (const int w : {0, 1}) {
    EXPECT_EQ(whole[w].wait(), 0) << whole[w].text();
    EXPECT_NE(whole[w].text().find("weights "), std::string::npos);
  }
  const auto members = store->store()->members();
  ASSERT_EQ(members.size(), 2U);
  for (const auto& member : members) {
    EXPECT_EQ(member.state, internal::cluster::StoreMember::State::kLeft) << member.task;
  }
  Job orphans(2, {"loop", "stop", "1", "5"}, environment);
  ASSERT_TRUE(orphans[0].wait_for("step 5 "));
  store.reset();
  orphans.expect_error(
      0, {"[liveness] worker 0 (localhost:", "has had no answer for", "which the launcher keeps"});
  orphans[1].signal(SIGCONT);
  orphans.expect_error(1, {"worker "});
}

// A4: Ctrl-Z and fg. Nobody was missed, whoever keeps the store and whether that one was stopped.
void expect_to_go_on(Job& job, const std::string& weights) {
  for (const int w : {0, 1}) ASSERT_TRUE(job[w].wait_for("step 5 "));
  for (const int w : {1, 0}) job[w].signal(SIGSTOP);
  job[0].wait_for("longer than the lease", std::chrono::seconds(4));
  for (const int w : {1, 0}) job[w].signal(SIGCONT);
  for (const int w : {0, 1}) {
    EXPECT_EQ(job[w].wait(), 0) << job[w].text();
    EXPECT_NE(job[w].text().find(weights), std::string::npos) << job[w].text();
  }
}

TEST(WorkerLiveness, A4_AJobThatWasStoppedAsAWholeGoesOn) {
  Job whole(2, {"loop"});
  EXPECT_EQ(whole[0].wait(), 0);
  const std::string text = whole[0].text();
  const std::string weights = text.substr(text.find("weights "));
  // Slow enough to be stopped before its end.
  Job by_chief(2, {"loop", "slow", "-1", "0"});
  expect_to_go_on(by_chief, weights);
  StoreServer store({});
  Job by_launcher(2, {"loop", "slow", "-1", "0"}, {"COHORT_STORE=" + store.address()});
  expect_to_go_on(by_launcher, weights);
}

// A6: by the chief, with how much.
TEST(WorkerLiveness, A6_AWorkerThatIsSlowIsNamed) {
  Job job(3, {"loop", "slow", "1", "0"});
  for (const int w : {0, 1, 2}) EXPECT_EQ(job[w].wait(), 0) << job[w].text();
  const std::string text = job[0].text();
  const std::size_t at = text.find("[liveness] worker 1 (localhost:");
  ASSERT_NE(at, std::string::npos) << text;
  const std::string line = text.substr(at, text.find('\n', at) - at);
  const std::size_t ratio = line.find(" ms are its own, ");
  ASSERT_NE(ratio, std::string::npos) << line;
  // 500 ms and 100 ms; on a busy machine the computing of all is in both, too.
  const double times = std::stod(line.substr(ratio + 17));
  EXPECT_GT(times, 2) << line;
  EXPECT_LT(times, 6) << line;
  EXPECT_NE(line.find("(steps 9 to 16)"), std::string::npos) << line;
  EXPECT_EQ(job[1].text().find("is slow"), std::string::npos) << "said by the chief alone";
}

// A child that ends as a program does takes nothing of its parent's with it.
TEST(WorkerLiveness, AWorkerMayHaveChildren) {
  for (const char* store : {"0", "2000"}) {
    // A child has its parent's memory, but not the threads that will free it.
    Job job(2, {"loop", "fork", "1", "5"},
            {str_cat("COHORT_LEASE_MS=", store), "ASAN_OPTIONS=detect_leaks=0"});
    for (const int w : {0, 1}) {
      EXPECT_EQ(job[w].wait(), 0) << job[w].text();
      EXPECT_NE(job[w].text().find("weights "), std::string::npos) << job[w].text();
    }
    EXPECT_NE(job[1].text().find("child 0\n"), std::string::npos) << job[1].text();
  }
}

// Its death is seen at once, although its child has all that was open.
TEST(WorkerLiveness, A1_AKilledWorkerWithAChildIsNamed) {
  Job job(2, {"loop", "fork_and_die", "1", "5"});
  job.expect_error(0, {"rank 1 (localhost:", "the connection was closed"});
}

// F3
TEST(WorkerLiveness, F3_AWorkerOfAnotherTokenIsRefused) {
  Job job(
      2, {"loop"}, {},
      {{"COHORT_JOB_TOKEN=one token of many bytes"}, {"COHORT_JOB_TOKEN=quite other bytes here"}});
  for (const int w : {0, 1}) {
    job.expect_error(w, {"expected a caller of this job", "COHORT_JOB_TOKEN"}, 1);
    for (const char* secret : {"one token of many", "quite other bytes"}) {
      EXPECT_EQ(job[w].text().find(secret), std::string::npos) << job[w].text();
    }
  }
}

TEST(WorkerLiveness, WrongVariablesAreNamed) {
  Job job(2, {"loop"}, {"COHORT_LEASE_MS=soon"});
  for (const int w : {0, 1}) job.expect_error(w, {"COHORT_LEASE_MS", "\"soon\""}, 1);
}

TEST(WorkerLiveness, OtherSeedsAreRefused) {
  Job job(2, {"shuffle"}, {}, {{"SEED=1"}, {"SEED=2"}});
  for (const int w : {0, 1}) {
    job.expect_error(w, {"the same seed", "set_seed(1) on rank 0", "set_seed(2) on rank 1"}, 1);
  }
}

// What one has set is everybody's.
TEST(WorkerLiveness, OneSeedIsEnough) {
  Job job(2, {"shuffle"}, {}, {{}, {"SEED=2"}});
  Job both(2, {"shuffle"}, {"SEED=2"});
  EXPECT_EQ(both[0].wait(), 0) << both[0].text();
  for (const int w : {0, 1}) {
    EXPECT_EQ(job[w].wait(), 0) << job[w].text();
    EXPECT_EQ(job[w].text(), both[0].text());
  }
}

// Whose kernels add in another order.
TEST(WorkerLiveness, OtherCapabilitiesOfProcessorsAreRefused) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    GTEST_SKIP() << "a processor that has no more than the least";
  }
#else
  GTEST_SKIP() << "names of x86-64";
#endif
  Job job(2, {"shuffle"}, {}, {{"ATEN_CPU_CAPABILITY=default"}, {"ATEN_CPU_CAPABILITY=avx2"}});
  for (const int w : {0, 1}) {
    job.expect_error(w,
                     {"the same job", "LibTorch", "CPU capability ", "CPU capability AVX2",
                      "ATEN_CPU_CAPABILITY"},
                     1);
  }
}

}  // namespace
}  // namespace cohort
