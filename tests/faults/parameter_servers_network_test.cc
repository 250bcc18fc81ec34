// SPDX-License-Identifier: Apache-2.0
//
// A chief, two parameter servers, two workers and the job's store, each on a host of its own, whose
// network falls apart or loses packets while three clients push and read: what they were told is
// what a register would have told them, so no update that was acknowledged is lost, and of two
// servers that both take themselves for the primary one at the most has said so to anybody.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/all_faults.h"
#include "tests/faults/hosts.h"
#include "tests/parameter_servers/histories.h"

namespace cohort::proof {
namespace {

using std::chrono::seconds;
using testing::all_faults;
using testing::as_promised;
using testing::Process;

// The hosts.
constexpr int kChief = 0;
constexpr int kServer = 1;  // ps 0: the primary of the first register, a backup of the second
constexpr int kOtherServer = 2;
constexpr int kWorker = 3;
constexpr int kOtherWorker = 4;
constexpr int kStore = 5;
constexpr int kHosts = 6;

constexpr std::size_t kPushesOfOne = 300;
// Longer than it takes to promote another server, shorter than it takes to give up a worker, whose
// function would run again.
constexpr seconds kLong{4};
// Behind the healing. A connection that has stalled sends again when its pause is over, which has
// doubled meanwhile, and slowly at first.
constexpr seconds kSoon{40};
seconds soon() { return std::chrono::ceil<seconds>(as_promised(kSoon)); }
constexpr seconds kGivenUp{100};  // a call of a group in a minute, and what goes before and after

struct Cut {
  const char* name;
  std::vector<int> from;
  std::vector<int> to;
  bool both_ways = true;
  bool goes_on = false;  ///< While it lasts.
  bool is_quick = false;
};
void PrintTo(const Cut& cut, std::ostream* out) { *out << cut.name; }

class ServersNetwork : public ::testing::Test {
 protected:
  void SetUp() override {
    static const bool can = Hosts::can_be_made();
    ASSERT_TRUE(can || !all_faults()) << "make test-faults needs root, ip and nft";
    if (!can) GTEST_SKIP() << "needs root, ip and nft: this machine makes no network namespaces";
  }

  std::unique_ptr<Process> start(int host, const std::string& type, int index,
                                 const std::vector<std::string>& command) const {
    const auto at = [](int of) { return str_cat('"', Hosts::address(of), '"'); };
    return std::make_unique<Process>(
        hosts_->on(host, command),
        std::vector<std::string>{
            str_cat("TF_CONFIG={\"cluster\": {\"chief\": [", at(kChief), "], \"ps\": [",
                    at(kServer), ", ", at(kOtherServer), "], \"worker\": [", at(kWorker), ", ",
                    at(kOtherWorker), "]}, \"task\": {\"type\": \"", type, "\", \"index\": ", index,
                    "}}"),
            str_cat("COHORT_STORE=", Hosts::address(kStore)), "COHORT_LEASE_MS=1000",
            "COHORT_COORDINATOR_LEASE=60", "COHORT_ALLOW_INSECURE=1", "COHORT_MIN_LOG_LEVEL=1"});
  }
  // Clients pause for so long behind each push: the job outlasts what is done to its network.
  void start_all(const std::string& replicas = "2", const std::string& pause = "50",
                 int percent_lost = 0) {
    if (!hosts_) hosts_.emplace(kHosts);
    if (percent_lost > 0) lose(percent_lost);
    store_ = start(kStore, "", 0, {STORE_PROGRAM, Hosts::address(kStore)});
    EXPECT_TRUE(store_->wait_for("keeps the store")) << store_->text();
    const std::vector<std::string> command = {HISTORY_PROGRAM, "none", replicas, pause};
    tasks_.clear();
    tasks_.push_back(start(kServer, "ps", 0, command));
    tasks_.push_back(start(kOtherServer, "ps", 1, command));
    tasks_.push_back(start(kWorker, "worker", 0, command));
    tasks_.push_back(start(kOtherWorker, "worker", 1, command));
    chief_ = start(kChief, "chief", 0, command);
  }
  void cut(const Cut& cut) const {
    for (const int from : cut.from) {
      for (const int to : cut.to) {
        drop(from, to);
        if (cut.both_ways) drop(to, from);
      }
    }
  }
  void heal() const {
    for (int host = 0; host < kHosts; ++host) hosts_->clear_filters(host);
  }
  void lose(int percent) const {
    for (int host = 0; host < kHosts; ++host) {
      hosts_->filter(host, str_cat("numgen random mod 100 < ", percent, " drop"));
    }
  }
  std::string texts() const {
    std::string out = "\nstore: " + last_of(*store_);
    for (const auto& each : tasks_) out += "\na task: " + last_of(*each);
    return out + "\nchief: " + last_of(*chief_);
  }
  static std::string last_of(const Process& task) {
    const std::string text = task.text();
    return text.size() < 4000 ? text : "... " + text.substr(text.size() - 4000);
  }

  // All have ended well, in time.
  void expect_a_register(seconds limit = soon()) {
    EXPECT_EQ(chief_->wait(limit), 0) << texts();
    for (const testing::PushHistory& each : testing::histories_in(chief_->text(), 2)) {
      EXPECT_EQ(each.pushes(), kPushesOfOne) << texts();
      EXPECT_GT(each.reads(), kPushesOfOne);
      EXPECT_EQ(each.first_violation(), "");
    }
    for (const auto& each : tasks_) EXPECT_EQ(each->wait(), 0) << each->text();
  }
  // The chief has ended by an error that says so.
  void expect_error(const std::vector<std::string>& words, seconds limit) {
    EXPECT_EQ(chief_->wait(limit), 1) << texts();
    for (const std::string& word : words) {
      EXPECT_NE(last_of(*chief_).find(word), std::string::npos) << word << " in" << texts();
    }
  }

  std::optional<Hosts> hosts_;
  std::unique_ptr<Process> store_;
  std::vector<std::unique_ptr<Process>> tasks_;  // in the order of their hosts
  std::unique_ptr<Process> chief_;

 private:
  void drop(int from, int to) const {
    hosts_->filter(to, str_cat("ip saddr 10.77.0.", from + 1, " drop"));
  }
};

class ServersPartition : public ServersNetwork, public ::testing::WithParamInterface<Cut> {};

TEST_P(ServersPartition, C6_HasTheHistoriesOfARegister) {
  if (!GetParam().is_quick && !all_faults()) GTEST_SKIP() << "in make test-faults";
  start_all();
  ASSERT_TRUE(chief_->wait_for("ended: 10\n")) << texts();
  cut(GetParam());
  if (GetParam().goes_on) {
    EXPECT_TRUE(chief_->wait_for("ended: 30\n", soon())) << texts();
  } else {
    chief_->wait_for("ended: 60\n", kLong);
  }
  heal();
  expect_a_register();
}

// A primary that hears of no backup, and one that has no store, do not know who is right: the store
// decides. With a client at its side it may tell it nothing.
INSTANTIATE_TEST_SUITE_P(
    Cuts, ServersPartition,
    ::testing::Values(
        Cut{.name = "ChiefAndServer", .from = {kChief}, .to = {kServer}},
        Cut{.name = "ChiefToServer", .from = {kChief}, .to = {kServer}, .both_ways = false},
        Cut{.name = "ServerToChief", .from = {kServer}, .to = {kChief}, .both_ways = false},
        Cut{.name = "WorkerAndServer", .from = {kWorker}, .to = {kServer}},
        Cut{.name = "WorkerToServer", .from = {kWorker}, .to = {kServer}, .both_ways = false},
        Cut{.name = "ServerToWorker", .from = {kServer}, .to = {kWorker}, .both_ways = false},
        Cut{.name = "ServerAndServer",
            .from = {kServer},
            .to = {kOtherServer},
            .goes_on = true,
            .is_quick = true},
        Cut{.name = "ServerToServer",
            .from = {kServer},
            .to = {kOtherServer},
            .both_ways = false,
            .goes_on = true},
        Cut{.name = "ServerAndAll",
            .from = {kServer},
            .to = {kChief, kOtherServer, kWorker, kOtherWorker, kStore},
            .goes_on = true},
        Cut{.name = "AllToServer",
            .from = {kChief, kOtherServer, kWorker, kOtherWorker, kStore},
            .to = {kServer},
            .both_ways = false,
            .goes_on = true},
        Cut{.name = "ServerToAll",
            .from = {kServer},
            .to = {kChief, kOtherServer, kWorker, kOtherWorker, kStore},
            .both_ways = false,
            .goes_on = true},
        Cut{.name = "ServerAndStore", .from = {kServer}, .to = {kStore}, .goes_on = true},
        Cut{.name = "ServerToStore",
            .from = {kServer},
            .to = {kStore},
            .both_ways = false,
            .goes_on = true},
        Cut{.name = "StoreToServer",
            .from = {kStore},
            .to = {kServer},
            .both_ways = false,
            .goes_on = true},
        Cut{.name = "ServerWithAWorker",
            .from = {kServer, kWorker},
            .to = {kChief, kOtherServer, kOtherWorker, kStore},
            .is_quick = true},
        Cut{.name = "ServerWithChiefAndWorker",
            .from = {kServer, kWorker, kChief},
            .to = {kOtherServer, kOtherWorker, kStore}}),
    [](const ::testing::TestParamInfo<Cut>& each) { return each.param.name; });

TEST_F(ServersNetwork, C6_LostPacketsChangeNothing) {
  if (!all_faults()) GTEST_SKIP() << "in make test-faults";
  start_all("2", "10", 5);
  expect_a_register(seconds(120));
}

// Without copies, for less than it takes to give up a server.
TEST_F(ServersNetwork, C6_APartitionWithoutCopiesIsBorne) {
  if (!all_faults()) GTEST_SKIP() << "in make test-faults";
  for (const Cut& each : {Cut{"", {kChief}, {kServer}}, Cut{"", {kWorker}, {kServer}}}) {
    start_all("1");
    ASSERT_TRUE(chief_->wait_for("ended: 10\n")) << texts();
    cut(each);
    chief_->wait_for("ended: 60\n", kLong);
    heal();
    expect_a_register();
  }
}

TEST_F(ServersNetwork, C6_AServerThatTheChiefNeverReachesIsNamed) {
  if (!all_faults()) GTEST_SKIP() << "in make test-faults";
  for (const char* replicas : {"1", "2"}) {
    start_all(replicas);
    ASSERT_TRUE(chief_->wait_for("ended: 10\n")) << texts();
    cut({.name = "", .from = {kChief}, .to = {kServer}});
    expect_error({"ps 0", Hosts::address(kServer)}, kGivenUp);
    heal();
  }
}

// What it was at ends with the call's time, and with it the job.
TEST_F(ServersNetwork, C6_AWorkerThatNeverReachesAServerIsNamed) {
  if (!all_faults()) GTEST_SKIP() << "in make test-faults";
  for (const char* replicas : {"1", "2"}) {
    start_all(replicas, "20");
    ASSERT_TRUE(chief_->wait_for("ended: 10\n")) << texts();
    cut({.name = "", .from = {kWorker}, .to = {kServer}});
    expect_error({"ps 0", Hosts::address(kServer), "(on worker 0)"}, kGivenUp);
    heal();
  }
}

}  // namespace
}  // namespace cohort::proof
