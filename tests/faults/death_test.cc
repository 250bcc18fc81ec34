// SPDX-License-Identifier: Apache-2.0
//
// A worker that is killed at any point of a step, three real processes: the others name it, and all
// of them hold the same whole step.
#include <gtest/gtest.h>

#include "cohort/base/strings.h"
#include "cohort/testing/ports.h"
#include "cohort/testing/workers.h"
#include "tests/faults/job.h"

namespace cohort::proof {
namespace {

using testing::free_ports;
using testing::Process;
constexpr int kWorkers = 3;

struct Case {
  const char* place;
  int victim;
  int time = 3;  // at which it is passed
  bool fit = false;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.place << "@" << c.victim; }
};

Job start(const Case& c, const std::vector<int>& ports) {
  Job job;
  const std::vector<std::string> addresses = testing::loopback_addresses(ports);
  for (int w = 0; w < kWorkers; ++w) {
    std::vector<std::string> command = {PROGRAM};
    if (c.fit) command.push_back("--fit");
    job.push_back(std::make_unique<Process>(
        command, std::vector<std::string>{
                     testing::worker_config(addresses, w), str_cat("RANK=", w), "OMP_NUM_THREADS=1",
                     "COHORT_MIN_LOG_LEVEL=1",
                     str_cat("COHORT_FAILPOINTS=", c.place, "=kill#", c.time, "@", c.victim)}));
  }
  return job;
}

class Death : public ::testing::TestWithParam<Case> {};

// A1
TEST_P(Death, IsNamedByTheOthersWhichHoldOneWholeStep) {
  const Case& c = GetParam();
  const std::vector<int> ports = free_ports(kWorkers);
  const Job job = start(c, ports);
  EXPECT_EQ(job[static_cast<std::size_t>(c.victim)]->wait(), 137);
  const Steps whole = oracle(
      PROGRAM, kWorkers, c.fit ? std::vector<std::string>{"--fit"} : std::vector<std::string>{});
  std::string held;
  for (int w = 0; w < kWorkers; ++w) {
    if (w == c.victim) continue;
    Process& survivor = *job[static_cast<std::size_t>(w)];
    EXPECT_EQ(survivor.wait(), 1) << survivor.text();
    const std::string error = last_line(survivor.text(), "error ");
    EXPECT_NE(error.find(str_cat("localhost:", ports[static_cast<std::size_t>(c.victim)])),
              std::string::npos)
        << survivor.text();
    const std::string holds = last_line(survivor.text(), "held ");
    if (held.empty()) held = holds;
    EXPECT_EQ(holds.substr(holds.find("weights")), held.substr(held.find("weights")))
        << survivor.text();
  }
  // The commit is what makes the step; whether the death came before it for the others is theirs.
  const std::string weights = held.substr(held.rfind(' ') + 1);
  bool is_whole = false;
  for (const auto& [step, hash] : whole) is_whole |= hash == weights;
  EXPECT_TRUE(is_whole) << held;
}

// Every place with one victim; every place with every victim where COHORT_FAULTS is "all".
std::vector<Case> cases() {
  std::vector<Case> out = {{"data.next", 0},
                           {"update.before_bucket", 1},
                           {"update.before_rule", 2},
                           {"update.before_commit", 0},
                           {"update.before_commit", 1},
                           {"update.after_commit", 2},
                           {"update.after_commit", 0},
                           {"fit.end_of_epoch", 1, 1, true},
                           {"evaluate.step", 2, 2, true}};
  if (!all_faults()) return out;
  std::vector<Case> all;
  for (Case each : out) {
    for (each.victim = 0; each.victim < kWorkers; ++each.victim) all.push_back(each);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(AtEachPlace, Death, ::testing::ValuesIn(cases()));

// A1, before there is anything to hold. Whoever comes when the others have gone again waits for
// them: a launcher may start them anew.
TEST(DeathAtTheStart, IsNamedByTheOthers) {
  for (const Case& c : {Case{"cluster.meet", 1, 1}, Case{"variable.first_value", 2, 2}}) {
    const std::vector<int> ports = free_ports(kWorkers);
    const Job job = start(c, ports);
    EXPECT_EQ(job[static_cast<std::size_t>(c.victim)]->wait(), 137);
    EXPECT_EQ(job[0]->wait(), 1) << c.place << job[0]->text();
    EXPECT_NE(job[0]->text().find(str_cat(ports[static_cast<std::size_t>(c.victim)])),
              std::string::npos)
        << c.place << job[0]->text();
  }
}

// All steps are made: those that have ended already lack nothing.
TEST(DeathAtTheEnd, HurtsNobody) {
  const Job job = start({"communicator.close", 1, 1}, free_ports(kWorkers));
  EXPECT_EQ(job[1]->wait(), 137);
  EXPECT_EQ(job[0]->wait(), 0) << job[0]->text();
  EXPECT_EQ(job[2]->wait(), 0) << job[2]->text();
}

}  // namespace
}  // namespace cohort::proof
