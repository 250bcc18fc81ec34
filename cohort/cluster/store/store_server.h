// SPDX-License-Identifier: Apache-2.0
//
// A store that other processes reach, and how they do.
//
//   StoreServer server({.address = "127.0.0.1:0", .security = security});  // launcher or chief
//   StoreClient client({.address = server.address(), .security = security, .task = "worker 1"});
//   client.store()->insert("key", "value");
#pragma once

#include <memory>
#include <string>

#include "cohort/cluster/store/store.h"
#include "cohort/rpc/security.h"

namespace cohort::internal::cluster {

/// Names the store to the tasks of a job, "host:port": who starts the tasks sets it.
inline constexpr const char* kStoreVariable = "COHORT_STORE";

struct StoreServerOptions {
  std::string address = "127.0.0.1:0";  ///< Port 0: one that is free.
  rpc::RpcSecurity security = {};
};

/// Threads: thread-safe. Blocks, at its end: until nobody is answered any more.
class StoreServer {
 public:
  /// Errors: as RpcServer.
  explicit StoreServer(StoreServerOptions options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::string address() const;
  int port() const;
  /// The keeper's own way to it.
  const std::shared_ptr<Store>& store() const;
  /// Everybody who asks from here on is told that the job is over.
  void close(const std::string& why);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

struct StoreClientOptions {
  std::string address = {};
  std::string keeper = "the launcher";  ///< Who keeps the store, for error texts.
  rpc::RpcSecurity security = {};
  std::string task = {};          ///< "worker 1"; empty: one that only looks.
  std::string task_address = {};  ///< Where the task itself is reached.
  std::chrono::milliseconds lease = std::chrono::seconds(10);
  /// The most that it waits for the store to be there.
  std::chrono::milliseconds start_timeout = std::chrono::seconds(30);
};

/// One task's way to the store. Threads: thread-safe.
class StoreClient {
 public:
  /// Joins as the task; from here on heartbeat() keeps it alive.
  /// Errors: as Store; DeadlineExceeded that names the address where no store is.
  explicit StoreClient(StoreClientOptions options);
  /// Without leave() the store takes the task for dead when its lease is over.
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  const std::shared_ptr<Store>& store() const;
  uint64_t generation() const;
  const StoreClientOptions& options() const;

  /// Says that the task lives, and what it is doing. Blocks: until the members are others than
  /// those of `version`, at most `hold`; for the answer at most `timeout` longer.
  /// `pace`: what members() gives the others of it.
  StoreReply heartbeat(int64_t version, const std::string& doing, const std::string& pace,
                       std::chrono::milliseconds hold, std::chrono::milliseconds timeout);
  std::vector<StoreMember> members(std::chrono::milliseconds timeout);
  /// Returns if the task may publish files: the store takes it for alive, and so do the others.
  /// Blocks: for at most `timeout`. Errors: FailedPrecondition that says why not.
  void check_may_write(std::chrono::milliseconds timeout);
  /// The task has ended in good order.
  void leave(std::chrono::milliseconds timeout);
  /// Ends what waits here, and all that comes. Blocks: never.
  void cancel();

 private:
  struct Impl;
  const std::shared_ptr<Impl> impl_;
  const std::shared_ptr<Store> store_;
};

}  // namespace cohort::internal::cluster
