// SPDX-License-Identifier: Apache-2.0
//
// Two hosts on a network that is slow, loses packets, resets connections or falls apart.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "tests/faults/hosts.h"
#include "tests/faults/job.h"

namespace cohort::proof {
namespace {

using testing::Process;

constexpr int kStartAgain = 134;  // of Unavailable and DeadlineExceeded (cohort/base/exit_code.h)

// The hosts that nothing reaches any more.
using Cut = std::vector<int>;
const std::vector<Cut> kCuts = {{0}, {1}, {0, 1}};

// A lease of 2 s, and 1 s more at the most: as the error itself says.
void expect_in_time(const std::string& text) {
  for (const char* words : {"has not been heard of for ", "has had no answer for "}) {
    const std::size_t at = text.find(words);
    if (at == std::string::npos) continue;
    EXPECT_LT(std::stod(text.substr(at + std::string(words).size())), 3) << text;
    return;
  }
  ADD_FAILURE() << "no lease has ended in " << text;
}

class Network : public ::testing::Test {
 protected:
  void SetUp() override {
    const bool can = Hosts::can_be_made();
    if (can) hosts_.emplace(hosts());
    ASSERT_TRUE(can || !all_faults()) << "make test-faults needs root, ip and nft";
    if (!can) GTEST_SKIP() << "needs root, ip and nft: this machine makes no network namespaces";
  }
  virtual int hosts() const { return 2; }
  void start(const std::vector<std::string>& flags = {},
             const std::vector<std::string>& variables = {}) {
    for (int h = 0; h < hosts(); ++h) {
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
  // Each says which host it has not heard from, and all hold the same step; or, where the network
  // may have parted the first from others in the very moment of a commit, one a step more.
  void expect_named_errors(int apart = 0) {
    std::map<int, std::string> held;
    for (const auto& worker : job_) {
      EXPECT_EQ(worker->wait(), kStartAgain) << worker->text();
      const std::string error = last_line(worker->text(), "error ");
      EXPECT_NE(error.find("(10.77.0."), std::string::npos) << error;
      const std::string holds = last_line(worker->text(), "held ");
      ASSERT_FALSE(holds.empty()) << worker->text();
      const auto [at, is_first] = held.emplace(std::stoi(holds), holds);
      EXPECT_EQ(at->second, holds) << error;
    }
    EXPECT_LE(held.rbegin()->first - held.begin()->first, apart);
  }
  void clear() {
    job_.clear();
    for (int host = 0; host < hosts_->count(); ++host) hosts_->clear_filters(host);
  }

  std::optional<Hosts> hosts_;
  Job job_;
};

TEST_F(Network, TwoHostsHaveTheBitsOfOneProcess) {
  start();
  expect_equal_training();
}

TEST_F(Network, A5_LostPacketsChangeNothing) {
  for (const char* percent : {"1", "5"}) {
    for (const int host : {0, 1}) {
      hosts_->filter(host, str_cat("numgen random mod 100 < ", percent, " drop"));
    }
    start();
    expect_equal_training();
    clear();
  }
}

// Nobody hangs: they train to the same bits, or end by an error that names the other.
TEST_F(Network, A5_ManyLostPacketsAreBorneOrNamed) {
  if (!all_faults()) GTEST_SKIP() << "in make test-faults";
  for (const int host : {0, 1}) hosts_->filter(host, "numgen random mod 100 < 20 drop");
  start({"--timeout", "20"}, {"COHORT_LEASE_MS=10000"});
  const Steps expected = oracle(PROGRAM, 2, {});
  for (const auto& worker : job_) {
    const int code = worker->wait();
    EXPECT_TRUE(code == 0 || code == kStartAgain) << code << worker->text();
    if (code == 0) {
      EXPECT_EQ(steps_of(worker->text()), expected) << worker->text();
    }
    if (code != 0) {
      EXPECT_NE(worker->text().find("10.77.0."), std::string::npos) << worker->text();
    }
  }
}

TEST_F(Network, A5_DoubledPacketsChangeNothing) {
  for (const int host : {0, 1}) {
    if (!hosts_->double_packets(host)) GTEST_SKIP() << "this kernel doubles no packets (nft dup)";
  }
  start();
  expect_equal_training();
}

TEST_F(Network, A5_ASlowLinkChangesNothing) {
  hosts_->shell(0, "tc qdisc add dev eth0 root tbf rate 1mbit burst 16kbit latency 400ms");
  start();
  expect_equal_training();
}

// Host 0 answers everything with a reset, and hears nothing itself.
TEST_F(Network, A5_AResetConnectionEndsBoth) {
  start({"--steps", "100000", "--timeout", "3"});
  for (const auto& worker : job_) ASSERT_TRUE(worker->wait_for("step 5 ")) << worker->text();
  hosts_->filter(0, "meta l4proto tcp reject with tcp reset");
  expect_named_errors();
}

// Nothing arrives any more, in one direction or the other or in both.
TEST_F(Network, A4_APartitionEndsBothByTheTimeout) {
  for (const Cut& cut : kCuts) {
    start({"--steps", "100000", "--timeout", "2"});
    for (const auto& worker : job_) ASSERT_TRUE(worker->wait_for("step 5 ")) << worker->text();
    for (const int host : cut) hosts_->filter(host, "drop");
    expect_named_errors(cut.front() == 0 ? 0 : 1);
    clear();
  }
}

const std::vector<std::string> kLeases = {"COHORT_HEARTBEAT_MS=200", "COHORT_LEASE_MS=2000"};

// By the lease, long before the timeout.
TEST_F(Network, A4_APartitionEndsBothByTheLease) {
  for (const Cut& cut : kCuts) {
    start({"--steps", "100000"}, kLeases);
    for (const auto& worker : job_) ASSERT_TRUE(worker->wait_for("step 5 ")) << worker->text();
    for (const int host : cut) hosts_->filter(host, "drop");
    expect_named_errors(cut.front() == 0 ? 0 : 1);
    for (const auto& worker : job_) expect_in_time(worker->text());
    clear();
  }
}

// Each gap is shorter than the lease.
TEST_F(Network, A4_APartitionThatComesAndGoesChangesNothing) {
  const std::vector<std::string> flags = {"--steps", "1000"};
  // TCP sends again after 0.2, 0.6, 1.4 and 3 s: a gap that a busy machine makes longer is heard
  // of.
  start(flags, {"COHORT_HEARTBEAT_MS=200", "COHORT_LEASE_MS=4000"});
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

// Off for half a second, on for half a second, and again: TCP gets little through.
TEST_F(Network, A4_APartitionThatFlapsIsBorneOrNamed) {
  if (!all_faults()) GTEST_SKIP() << "in make test-faults";
  start({"--steps", "100000"}, kLeases);
  ASSERT_TRUE(job_[0]->wait_for("step 2 ")) << job_[0]->text();
  for (int i = 0; i < 10; ++i) {
    hosts_->filter(0, "drop");
    job_[0]->wait_for("half a second", std::chrono::milliseconds(500));
    hosts_->clear_filters(0);
    job_[0]->wait_for("half a second", std::chrono::milliseconds(500));
  }
  // Whatever came of it, it ends once nothing gets through any more, and both hold the same step.
  hosts_->filter(0, "drop");
  expect_named_errors(1);
}

class ThreeHosts : public Network {
 protected:
  int hosts() const override { return 3; }
};

// 2 against 1: all end, and those on either side say whom they miss.
TEST_F(ThreeHosts, A4_OneIsCutOffFromTheOthers) {
  for (const int lonely : {0, 2}) {
    start({"--steps", "100000"}, kLeases);
    for (const auto& worker : job_) ASSERT_TRUE(worker->wait_for("step 5 ")) << worker->text();
    hosts_->filter(lonely, "drop");
    for (int host = 0; host < 3; ++host) {
      if (host != lonely) hosts_->filter(host, str_cat("ip saddr 10.77.0.", lonely + 1, " drop"));
    }
    expect_named_errors(1);
    for (const auto& worker : job_) expect_in_time(worker->text());
    clear();
  }
}

}  // namespace
}  // namespace cohort::proof
