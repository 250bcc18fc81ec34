// SPDX-License-Identifier: Apache-2.0
//
// Calls to the servers that keep one shard's copies, as if they were one: it finds who leads them,
// and sends a call again, with the number that it has, until somebody has done it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/rpc/client.h"

namespace cohort::internal::coordinator {

struct GroupClientOptions {
  int group = 0;
  std::size_t tasks = 1;                                      ///< Parameter servers of the job.
  std::vector<std::shared_ptr<rpc::RpcClient>> members = {};  ///< The first one leads at first.
  std::vector<std::string> addresses = {};                    ///< Of the members, for error texts.
  rpc::RpcClientOptions first = {};                           ///< How the first one is reached.
  /// What one server may take for an answer, before another one is asked.
  std::chrono::milliseconds one_try = std::chrono::seconds(2);
};

/// Threads: thread-safe. Errors: Unavailable that names the servers where none has led them until
/// the deadline.
class GroupClient final : public rpc::RpcClient {
 public:
  explicit GroupClient(GroupClientOptions options);
  ~GroupClient() override;
  void start(const std::string& method, rpc::Payload request, rpc::RpcCallOptions options,
             std::function<void(rpc::RpcResult)> done) override;
  /// In the lane of whoever leads them. What it does not do is to be asked for over gRPC, where
  /// the others are asked, too: its number says that it is the same call.
  rpc::LaneStart start_in_lane(const std::string& method, const rpc::Payload& request,
                               const rpc::RpcCallOptions& options) override;

 private:
  struct Impl;
  const std::shared_ptr<Impl> group_;
};

/// The groups of all servers, by their indices: group g has the members g, g + 1, ...
std::vector<std::shared_ptr<rpc::RpcClient>> group_clients(
    const std::vector<std::shared_ptr<rpc::RpcClient>>& servers,
    const std::vector<rpc::RpcClientOptions>& options, int replicas);

}  // namespace cohort::internal::coordinator
