// SPDX-License-Identifier: Apache-2.0
//
// Jobs of real processes with parameter servers, whose workers and servers are killed. K09 and K10
// of the conformance list.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/testing/ports.h"
#include "cohort/testing/process.h"

namespace {

using cohort::str_cat;
using cohort::testing::free_ports;
using cohort::testing::Process;

constexpr int kScheduled = 2000;

class Job {
 public:
  Job() : ports_(free_ports(4)) {}

  std::unique_ptr<Process> start(const std::string& type, int index,
                                 const std::string& failpoints = {}) const {
    const auto at = [this](int i) {
      return str_cat("\"127.0.0.1:", ports_.at(static_cast<std::size_t>(i)), "\"");
    };
    std::vector<std::string> environment = {
        "COHORT_MIN_LOG_LEVEL=1",
        str_cat("TF_CONFIG={\"cluster\": {\"chief\": [", at(0), "], \"ps\": [", at(1),
                "], \"worker\": [", at(2), ", ", at(3), "]}, \"task\": {\"type\": \"", type,
                "\", \"index\": ", index, "}}")};
    if (!failpoints.empty()) environment.push_back("COHORT_FAILPOINTS=" + failpoints);
    return std::make_unique<Process>(std::vector<std::string>{PROGRAM, std::to_string(kScheduled)},
                                     environment);
  }

 private:
  const std::vector<int> ports_;
};

/// What stands behind `name` in the chief's last line.
int number_behind(const std::string& text, const std::string& name) {
  const auto at = text.find(name);
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + name.size());
}

/// "PLACE" or "PLACE#N" as COHORT_FAILPOINTS has it.
std::string killing(const std::string& place) {
  const auto number = place.find('#');
  if (number == std::string::npos) return place + "=kill";
  return place.substr(0, number) + "=kill" + place.substr(number);
}

// Each of these is where a worker dies: it has the functions, its dataset is made, before and
// behind a function, before and behind the answer.
class KilledWorker : public ::testing::TestWithParam<const char*> {};

TEST_P(KilledWorker, EveryFunctionRunsAtLeastOnce) {  // K09
  const Job job;
  const auto ps = job.start("ps", 0);
  const auto steady = job.start("worker", 0);
  const auto killed = job.start("worker", 1, killing(GetParam()));
  const auto chief = job.start("chief", 0);
  EXPECT_EQ(killed->wait(), 128 + SIGKILL) << killed->text();
  const auto again = job.start("worker", 1);
  EXPECT_EQ(chief->wait(), 0) << chief->text();
  EXPECT_EQ(number_behind(chief->text(), "ended: "), kScheduled) << chief->text();
  EXPECT_GE(number_behind(chief->text(), "ready, "), kScheduled) << chief->text();
  EXPECT_EQ(steady->wait(), 0) << "the chief ends the job: " << steady->text();
  EXPECT_EQ(again->wait(), 0) << again->text();
  EXPECT_EQ(ps->wait(), 0) << ps->text();
}

INSTANTIATE_TEST_SUITE_P(Places, KilledWorker,
                         ::testing::Values("worker.received", "worker.make_resource",
                                           "worker.before_function#3", "worker.after_function#3",
                                           "worker.before_answer#2", "worker.answered#2"));

TEST(KilledServer, IsNamedByTheChief) {  // K10
  const Job job;
  const auto ps = job.start("ps", 0);
  const auto first = job.start("worker", 0, "worker.before_function=stop#100");
  const auto second = job.start("worker", 1, "worker.before_function=stop#100");
  const auto chief = job.start("chief", 0);
  ASSERT_TRUE(chief->wait_for("scheduled")) << chief->text();  // and cannot end: its workers stop
  ps->signal(SIGKILL);
  EXPECT_EQ(chief->wait(), 1) << chief->text();
  EXPECT_NE(chief->text().find("ps 0"), std::string::npos) << chief->text();
}

TEST(Cohortrun, RunsAJobWithParameterServers) {
  Process job({COHORTRUN, "--ps", "2", "--workers", "2", "--chief", "--", PROGRAM, "200"});
  EXPECT_EQ(job.wait(), 0) << job.text();
  EXPECT_NE(job.text().find("ended: 200 ready, 200 added"), std::string::npos) << job.text();
}

}  // namespace
