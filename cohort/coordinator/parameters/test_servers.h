// SPDX-License-Identifier: Apache-2.0
//
// Parameter servers in this process, for tests, and clients of them over real connections.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/coordinator/internal/cluster_connection.h"
#include "cohort/coordinator/internal/parameter_server_place.h"
#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/coordinator/parameters/parameter_service.h"
#include "cohort/rpc/test_lanes.h"

namespace cohort::internal::coordinator {

class TestServers {
 public:
  explicit TestServers(int count, ParameterServiceOptions options = ParameterServiceOptions()) {
    for (int s = 0; s < count; ++s) {
      services.push_back(std::make_shared<ParameterService>(options));
      servers_.push_back(std::make_unique<rpc::RpcServer>(
          rpc::RpcServerOptions{.lanes = parameter_lanes()},
          rpc::counted(parameter_methods(services.back()), calls)));
    }
  }

  rpc::RpcClientOptions address(int server) const {
    return {.address = servers_[static_cast<std::size_t>(server)]->address(),
            .server_name = "parameter server " + std::to_string(server)};
  }
  /// Another process's view of them.
  std::shared_ptr<ParameterServers> connect() const {
    std::vector<std::string> addresses;
    for (const auto& each : servers_) addresses.push_back(each->address());
    return connect(addresses);
  }
  /// Of one that reaches them there, and in no other way.
  std::shared_ptr<ParameterServers> connect(const std::vector<std::string>& addresses) const {
    std::vector<std::shared_ptr<rpc::RpcClient>> clients;
    for (std::size_t s = 0; s < servers_.size(); ++s) {
      rpc::RpcClientOptions options = address(static_cast<int>(s));
      options.lanes = options.address == addresses[s];
      options.address = addresses[s];
      clients.push_back(std::make_shared<rpc::RpcClient>(std::move(options)));
    }
    return std::make_shared<ParameterServers>(std::move(clients));
  }
  Strategy coordinator(Partitioner partitioner = {}, int workers = 1) const {
    return make_parameter_server_strategy({.servers = connect(),
                                           .partitioner = std::move(partitioner),
                                           .workers = workers,
                                           .sync_pushes = sync_pushes});
  }
  /// A coordinator of other tasks' functions, what they change once is here.
  Strategy coordinator(std::shared_ptr<ClusterConnection> connection) const {
    const int workers = connection->num_workers();
    return make_parameter_server_strategy({.servers = connect(),
                                           .workers = workers,
                                           .connection = std::move(connection),
                                           .sync_pushes = sync_pushes});
  }
  Strategy worker(int worker, int workers = 2, Partitioner partitioner = {}) const {
    return make_parameter_server_strategy({.servers = connect(),
                                           .partitioner = std::move(partitioner),
                                           .worker = worker,
                                           .workers = workers,
                                           .sync_pushes = sync_pushes});
  }
  void end(int server) { servers_[static_cast<std::size_t>(server)].reset(); }

  std::vector<std::shared_ptr<ParameterService>> services;
  SyncPushes sync_pushes = {};  ///< Of strategies from here on.
  const std::shared_ptr<rpc::CallCounts> calls = std::make_shared<rpc::CallCounts>();  ///< Of all.

 private:
  std::vector<std::unique_ptr<rpc::RpcServer>> servers_;
};

}  // namespace cohort::internal::coordinator
