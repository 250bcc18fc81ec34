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
constexpr int kStartAgain = 134;  // of Unavailable (cohort/base/exit_code.h)

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

// Task, address, operation, step, seconds, and what to do; seen within 2 s.
void expect_named(const std::string& error, int victim, int port) {
  for (const std::string& word :
       {str_cat("rank ", victim, " (localhost:", port, ", worker ", victim, ")"),
        std::string("Here it was "), std::string(", step "),
        std::string("start the job again from its last checkpoint")}) {
    EXPECT_NE(error.find(word), std::string::npos) << word << " in " << error;
  }
  const std::string begun = ": failed, begun ";
  const std::size_t at = error.find(begun);
  if (at != std::string::npos) {
    EXPECT_LT(std::stod(error.substr(at + begun.size())), 2) << error;
  }
}

class Death : public ::testing::TestWithParam<Case> {};

TEST_P(Death, A1_IsNamedByTheOthersWhichHoldOneWholeStep) {
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
    EXPECT_EQ(survivor.wait(), kStartAgain) << survivor.text();
    const std::string error = last_line(survivor.text(), "error ");
    expect_named(error, c.victim, ports[static_cast<std::size_t>(c.victim)]);
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

// Before there is anything to hold. Whoever comes when the others have gone again waits for
// them: a launcher may start them anew. So of those that meet only the first one is looked at.
TEST(DeathAtTheStart, A1_IsNamedByTheOthers) {
  std::vector<Case> cases = {{"cluster.meet", 1, 1}, {"variable.first_value", 2, 2}};
  if (all_faults()) {
    cases.insert(
        cases.end(),
        {{"cluster.meet", 2, 1}, {"variable.first_value", 0, 2}, {"variable.first_value", 1, 2}});
  }
  for (const Case& c : cases) {
    const std::vector<int> ports = free_ports(kWorkers);
    const Job job = start(c, ports);
    EXPECT_EQ(job[static_cast<std::size_t>(c.victim)]->wait(), 137);
    const bool have_met = std::string(c.place) != "cluster.meet";
    for (int w = 0; w < (have_met ? kWorkers : 1); ++w) {
      if (w == c.victim) continue;
      Process& survivor = *job[static_cast<std::size_t>(w)];
      EXPECT_EQ(survivor.wait(), kStartAgain) << c.place << survivor.text();
      EXPECT_NE(survivor.text().find(str_cat(ports[static_cast<std::size_t>(c.victim)])),
                std::string::npos)
          << c.place << survivor.text();
    }
  }
}

// All steps are made: those that have ended already lack nothing.
TEST(DeathAtTheEnd, A1_HurtsNobody) {
  for (const int victim : all_faults() ? std::vector<int>{0, 1, 2} : std::vector<int>{1}) {
    const Job job = start({"communicator.close", victim, 1}, free_ports(kWorkers));
    EXPECT_EQ(job[static_cast<std::size_t>(victim)]->wait(), 137);
    for (int w = 0; w < kWorkers; ++w) {
      Process& other = *job[static_cast<std::size_t>(w)];
      if (w != victim) {
        EXPECT_EQ(other.wait(), 0) << victim << other.text();
      }
    }
  }
}

}  // namespace
}  // namespace cohort::proof
