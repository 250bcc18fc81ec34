// SPDX-License-Identifier: Apache-2.0
//
// Two hosts on a network that is slow, loses packets, resets connections or falls apart.
#include <gtest/gtest.h>

#include <optional>

#include "tests/faults/hosts.h"
#include "tests/faults/job.h"

namespace cohort::proof {
namespace {

using testing::Process;

class Network : public ::testing::Test {
 protected:
  void SetUp() override {
    const bool can = Hosts::can_be_made();
    if (can) hosts_.emplace(2);
    ASSERT_TRUE(can || !all_faults()) << "make test-faults needs root, ip and nft";
    if (!can) GTEST_SKIP() << "needs root, ip and nft: this machine makes no network namespaces";
  }
  void start(const std::vector<std::string>& flags = {},
             const std::vector<std::string>& variables = {}) {
    for (int h = 0; h < 2; ++h) {
      std::vector<std::string> command = {PROGRAM};
      command.insert(command.end(), flags.begin(), flags.end());
      std::vector<std::string> environment = hosts_->environment_of(h);
      environment.insert(environment.end(), variables.begin(), variables.end());
      job_.push_back(std::make_unique<Process>(hosts_->on(h, command), environment));
    }
  }
  // Both have trained through, to the bits of one process.
  void expect_equal_training(const std::vector<std::string>& flags = {}) {
    const Steps expected = oracle(PROGRAM, 2, flags);
    for (const auto& worker : job_) {
      EXPECT_EQ(worker->wait(), 0) << worker->text();
      EXPECT_EQ(steps_of(worker->text()), expected) << worker->text();
    }
  }
  // Each says which host it has not heard from, and both hold the same step.
  void expect_named_errors() {
    std::string held;
    for (const auto& worker : job_) {
      EXPECT_EQ(worker->wait(), 1);
      const std::string error = last_line(worker->text(), "error ");
      EXPECT_NE(error.find("(10.77.0."), std::string::npos) << error;
      const std::string holds = last_line(worker->text(), "held ");
      if (held.empty()) held = holds;
      EXPECT_EQ(holds, held) << error;
    }
  }

  std::optional<Hosts> hosts_;
  Job job_;
};

TEST_F(Network, TwoHostsHaveTheBitsOfOneProcess) {
  start();
  expect_equal_training();
}

// A5
TEST_F(Network, LostPacketsChangeNothing) {
  hosts_->filter(0, "numgen random mod 100 < 5 drop");
  hosts_->filter(1, "numgen random mod 100 < 5 drop");
  start();
  expect_equal_training();
}

// A5
TEST_F(Network, ASlowLinkChangesNothing) {
  hosts_->shell(0, "tc qdisc add dev eth0 root tbf rate 1mbit burst 16kbit latency 400ms");
  start();
  expect_equal_training();
}

// A5: host 0 answers everything with a reset, and hears nothing itself.
TEST_F(Network, AResetConnectionEndsBoth) {
  start({"--steps", "100000", "--timeout", "3"});
  for (const auto& worker : job_) ASSERT_TRUE(worker->wait_for("step 5 ")) << worker->text();
  hosts_->filter(0, "meta l4proto tcp reject with tcp reset");
  expect_named_errors();
}

// A4: nothing arrives any more, in one direction or in both.
TEST_F(Network, APartitionEndsBothByTheTimeout) {
  for (const bool both : {false, true}) {
    start({"--steps", "100000", "--timeout", "2"});
    for (const auto& worker : job_) ASSERT_TRUE(worker->wait_for("step 5 ")) << worker->text();
    hosts_->filter(0, "drop");
    if (both) hosts_->filter(1, "drop");
    expect_named_errors();
    hosts_->clear_filters(0);
    hosts_->clear_filters(1);
    job_.clear();
  }
}

const std::vector<std::string> kLeases = {"COHORT_HEARTBEAT_MS=200", "COHORT_LEASE_MS=2000"};

// A4: by the lease, long before the timeout.
TEST_F(Network, A4_APartitionEndsBothByTheLease) {
  for (const bool both : {false, true}) {
    start({"--steps", "100000"}, kLeases);
    for (const auto& worker : job_) ASSERT_TRUE(worker->wait_for("step 5 ")) << worker->text();
    hosts_->filter(0, "drop");
    if (both) hosts_->filter(1, "drop");
    expect_named_errors();
    for (const auto& worker : job_) {
      EXPECT_NE(worker->text().find("[liveness]"), std::string::npos) << worker->text();
    }
    hosts_->clear_filters(0);
    hosts_->clear_filters(1);
    job_.clear();
  }
}

// A4: each gap is shorter than the lease.
TEST_F(Network, A4_APartitionThatComesAndGoesChangesNothing) {
  const std::vector<std::string> flags = {"--steps", "1000"};
  start(flags, kLeases);
  ASSERT_TRUE(job_[0]->wait_for("step 2 ")) << job_[0]->text();
  for (int i = 0; i < 3; ++i) {
    hosts_->filter(0, "drop");
    job_[0]->wait_for("half a second", std::chrono::milliseconds(500));
    hosts_->clear_filters(0);
    // Longer than TCP waits until it sends again what was lost.
    job_[0]->wait_for("two seconds", std::chrono::seconds(2));
  }
  expect_equal_training(flags);
}

}  // namespace
}  // namespace cohort::proof
