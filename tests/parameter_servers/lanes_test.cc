// SPDX-License-Identifier: Apache-2.0
//
// Parameter servers in processes of their own that stand still, or die, in the middle of calls in
// lanes: calls end, and nothing is done twice, or by halves.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/cluster/store/store_server.h"
#include "cohort/coordinator/parameters/group_client.h"
#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/rpc/client.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/ports.h"
#include "cohort/testing/process.h"

namespace {

using namespace cohort;
using namespace cohort::internal;
using cohort::testing::expect_error;
using cohort::testing::Process;
using cohort::testing::run_with_deadline;
using coordinator::ParameterHandle;
using coordinator::ParameterServers;
using coordinator::UpdateStep;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kNumbers = 1 << 20;  // 4 MB: the most of one message

// What goes over gRPC is counted.
class Counting final : public rpc::RpcClient {
 public:
  using rpc::RpcClient::RpcClient;
  void start(const std::string& method, rpc::Payload request, rpc::RpcCallOptions options,
             std::function<void(rpc::RpcResult)> done) override {
    ++calls;
    rpc::RpcClient::start(method, std::move(request), options, std::move(done));
  }
  std::atomic<int> calls = 0;
};

void open_lane(rpc::RpcClient& client) {
  run_with_deadline(seconds(60), [&] {
    while (!client.has_lane()) {
      client.start_in_lane("none", rpc::Payload(), {});
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
}

std::shared_ptr<ParameterServers> view_of(std::shared_ptr<rpc::RpcClient> client,
                                          milliseconds timeout) {
  return std::make_shared<ParameterServers>(
      std::vector<std::shared_ptr<rpc::RpcClient>>{std::move(client)},
      coordinator::ParameterServersOptions{.timeout = timeout});
}

ParameterHandle make_zeros(ParameterServers& servers) {
  return servers.make_or_bind({.name = "w", .shape = {kNumbers}, .server = 0},
                              [](int64_t rows, int64_t) { return zeros({rows}); });
}

void add(ParameterServers& servers, const ParameterHandle& to, double number) {
  const UpdateStep step{.rule = update_rules::SgdStep{1}, .how = {}, .slots = {}};
  ParameterServers::Push push(servers);
  push.dense(to, step, full({kNumbers}, -number));
  push.wait();
}

// All of its numbers, which are the same, or -1.
int64_t value_of(ParameterServers& servers, const ParameterHandle& of) {
  const Tensor value = servers.pull(of);
  const auto first = value.select(0, 0).item<double>();
  return value.equal(full({kNumbers}, first)) ? static_cast<int64_t>(first) : -1;
}

// Push i adds 4 to the power of i: a number that stands twice in the value is a 2.
int64_t power_of_four(int i) { return int64_t{1} << (2 * i); }

// It stands still where it has begun a push, and is asked more meanwhile: also over gRPC, as a lane
// has three large places.
TEST(LanesOfServers, OneThatStandsStillDoesNothingTwiceOrByHalves) {
  constexpr int kPushes = 6;
  Process server({LANES_PROGRAM}, {"COHORT_FAILPOINTS=lanes.in_push=stop"});
  ASSERT_TRUE(server.wait_for("\n")) << server.text();
  const std::string port = server.text().substr(std::string("ready ").size());
  const auto client = std::make_shared<rpc::RpcClient>(rpc::RpcClientOptions{
      .address = "127.0.0.1:" + std::to_string(std::atoi(port.c_str())), .server_name = "ps 0"});
  const auto patient = view_of(client, seconds(60));
  const ParameterHandle w = make_zeros(*patient);
  open_lane(*client);
  {
    const auto hasty = view_of(client, seconds(1));
    for (int i = 0; i < kPushes; ++i) {
      expect_error<DeadlineExceeded>({"ps 0", "127.0.0.1", "ps.push"}, [&] {
        run_with_deadline(seconds(60),
                          [&] { add(*hasty, w, static_cast<double>(power_of_four(i))); });
      });
    }
    server.signal(SIGCONT);
  }
  add(*patient, w, static_cast<double>(power_of_four(kPushes)));
  // What was asked may be done now, or never.
  int64_t value = 0;
  for (int look = 0; look < 20; ++look) {
    value = value_of(*patient, w);
    ASSERT_NE(value, -1) << "of two pushes";
    for (int i = 0; i <= kPushes; ++i) {
      ASSERT_LE(value / power_of_four(i) % 4, 1) << "push " << i << " twice, of " << value;
    }
    ASSERT_EQ(value / power_of_four(kPushes), 1) << value;
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(server.text().find("torn"), std::string::npos);
}

// Two servers that have copies, and a client that has a lane with the first one.
class TwoCopies {
 public:
  TwoCopies(const std::string& of_first, const std::string& of_second) {
    for (const int port : cohort::testing::free_ports(2)) {
      addresses_.push_back("127.0.0.1:" + std::to_string(port));
      options_.push_back({.address = addresses_.back()});
      members.push_back(std::make_shared<Counting>(options_.back()));
    }
    first = start("0", of_first);
    second = start("1", of_second);
    EXPECT_TRUE(first->wait_for("ready")) << first->text();
    EXPECT_TRUE(second->wait_for("ready")) << second->text();
  }
  /// So many pushes, each of which adds 1; returns the value then.
  int64_t push(int times) {
    ParameterServers servers(
        coordinator::group_clients({members.begin(), members.end()}, options_, 2),
        {.timeout = seconds(60), .are_groups = true});
    servers.begin(1);
    const ParameterHandle w = make_zeros(servers);
    open_lane(*members[0]);
    int in_lanes = 0;  // of the first ones; on a busy machine some are asked again
    for (int i = 0; i < times; ++i) {
      const int before = members[0]->calls;
      add(servers, w, 1);
      if (i < 5 && members[0]->calls == before) ++in_lanes;
    }
    EXPECT_GT(in_lanes, 0) << "they go over gRPC";
    return value_of(servers, w);
  }

  std::unique_ptr<Process> first, second;
  std::vector<std::shared_ptr<Counting>> members;

 private:
  std::unique_ptr<Process> start(const char* task, const std::string& environment) const {
    return std::make_unique<Process>(std::vector<std::string>{LANES_PROGRAM, task, store_.address(),
                                                              "3000", addresses_[0], addresses_[1]},
                                     std::vector<std::string>{environment});
  }
  const cluster::StoreServer store_{cluster::StoreServerOptions{}};
  std::vector<std::string> addresses_;
  std::vector<rpc::RpcClientOptions> options_;
};

// The primary dies where its copy has a push, which it has applied itself, and the client has no
// answer; or where it is about to apply one.
class LanesOfCopies : public ::testing::TestWithParam<const char*> {};

TEST_P(LanesOfCopies, APushThatIsAskedAgainOfTheCopyCountsOnce) {
  TwoCopies copies("COHORT_FAILPOINTS=" + std::string(GetParam()) + "=kill#20", "LANES_NONE=1");
  run_with_deadline(seconds(100), [&] { EXPECT_EQ(copies.push(40), 40); });
  EXPECT_EQ(copies.first->wait(), 128 + SIGKILL) << copies.first->text();
}

INSTANTIATE_TEST_SUITE_P(Places, LanesOfCopies, ::testing::Values("ps.before_answer", "ps.apply"));

// Which applies what it has acknowledged.
TEST(LanesOfTheBackup, OneThatHasNoMemoryForAnUpdateSaysSoAndEnds) {
  TwoCopies copies("LANES_NONE=1", "LANES_NO_MEMORY_AT=20");
  run_with_deadline(seconds(100), [&] { EXPECT_EQ(copies.push(40), 40); });
  EXPECT_EQ(copies.second->wait(), 128 + SIGABRT) << copies.second->text();
  EXPECT_NE(copies.second->text().find("ps 1, shards of group 0: "), std::string::npos)
      << copies.second->text();
}

}  // namespace
