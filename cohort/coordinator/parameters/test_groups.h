// SPDX-License-Identifier: Apache-2.0
//
// Parameter servers with copies in this process, for tests, which end and begin again.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/cluster/store/store_server.h"
#include "cohort/coordinator/parameters/group_client.h"
#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/coordinator/parameters/replica_host.h"
#include "cohort/coordinator/parameters/replicated_state.h"
#include "cohort/rpc/test_lanes.h"
#include "cohort/testing/comes_true.h"
#include "cohort/testing/ports.h"

namespace cohort::internal::coordinator {

/// Two servers, each the first primary of one group and a backup of the other.
class TestGroups {
 public:
  TestGroups(std::string store, uint64_t job, std::chrono::milliseconds lease)
      : store_(std::move(store)), job_(job), lease_(lease) {
    std::vector<std::string> addresses;
    for (const int port : testing::free_ports(kServers)) {
      addresses.push_back(str_cat("127.0.0.1:", port));
    }
    spec_ = ClusterSpec({{"ps", addresses}});
    for (int task = 0; task < kServers; ++task) start(task);
  }

  void start(int task) {
    Task& made = tasks_[task];
    made.hosts = std::make_unique<ReplicaHosts>(
        ReplicaHosts::Options{.spec = spec_, .task = task, .store = store_, .lease = lease_});
    made.server = std::make_unique<rpc::RpcServer>(
        rpc::RpcServerOptions{.address = spec_.task_address("ps", task),
                              .lanes = ReplicaHosts::lanes()},
        rpc::counted(made.hosts->methods(), calls_));
    made.hosts->begin(kServers, job_);
  }
  /// With all copies there, so that nothing is lost: a busy machine may have dropped one before.
  /// All at once, as a killed process ends: one that hears nothing any more would drop the other.
  void stop(int task) {
    EXPECT_TRUE(testing::comes_true([this] { return is_whole(); }));
    tasks_[task].hosts->end();
    tasks_[task].server.reset();
    tasks_[task].hosts.reset();
  }
  std::vector<rpc::RpcClientOptions> addresses() const {
    std::vector<rpc::RpcClientOptions> out;
    for (int task = 0; task < kServers; ++task) {
      out.push_back({.address = spec_.task_address("ps", task)});
    }
    return out;
  }
  rpc::CallCounts& calls() { return *calls_; }
  /// Lanes that the server's callers have.
  std::size_t lanes(int task) const { return tasks_.at(task).server->lanes(); }
  std::shared_ptr<ParameterServers> connect() const {
    std::vector<std::shared_ptr<rpc::RpcClient>> clients;
    for (const rpc::RpcClientOptions& each : addresses()) {
      clients.push_back(std::make_shared<rpc::RpcClient>(each));
    }
    return connect(clients);
  }
  std::shared_ptr<ParameterServers> connect(
      const std::vector<std::shared_ptr<rpc::RpcClient>>& clients) const {
    return std::make_shared<ParameterServers>(
        group_clients(clients, addresses(), kServers),
        ParameterServersOptions{.timeout = std::chrono::seconds(60), .are_groups = true});
  }
  bool is_whole() const { return is_whole(0) && is_whole(1); }
  /// Whether a server says that it leads the group, and all copies are there.
  bool is_whole(int group) const {
    rpc::MessageWriter header;
    header.number(static_cast<uint64_t>(group));
    header.text("ps.formed");
    for (int task = 0; task < kServers; ++task) {
      try {
        rpc::RpcClient client({.address = spec_.task_address("ps", task)});
        GroupStatus status{};
        uint64_t hint = 0;
        read_group_answer(client.call("ps.group", message(header)), status, hint);
        if (status == GroupStatus::kDone) return true;
      } catch (const Error&) {  // it is not there
      }
    }
    return false;
  }

 private:
  static constexpr int kServers = 2;
  struct Task {
    std::unique_ptr<ReplicaHosts> hosts;
    std::unique_ptr<rpc::RpcServer> server;  // its calls end first
  };
  const std::string store_;
  const uint64_t job_;
  const std::chrono::milliseconds lease_;
  const std::shared_ptr<rpc::CallCounts> calls_ = std::make_shared<rpc::CallCounts>();  // of both
  ClusterSpec spec_;
  std::map<int, Task> tasks_;
};

}  // namespace cohort::internal::coordinator
