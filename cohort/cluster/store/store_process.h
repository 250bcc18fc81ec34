// SPDX-License-Identifier: Apache-2.0
//
// The job's store (cohort/cluster/store), in a process of its own: cohortrun itself starts
// processes as long as the job lives, and so has no threads.
//
//   StoreProcess store("127.0.0.1:0");           // before any thread
//   task.environment.push_back("COHORT_STORE=" + store.address());
#pragma once

#include <string>

#include "cohort/rpc/security.h"

namespace cohort::internal::cluster {

/// Threads: thread-compatible. Made by a process without threads.
class StoreProcess {
 public:
  /// Listens at `address` (port 0: one that is free), for callers of this job.
  /// Errors: Unavailable that says what the store said.
  explicit StoreProcess(const std::string& address, const rpc::RpcSecurity& security = {});
  /// Ends it. So does the end of this process, however it ends.
  ~StoreProcess();
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  /// "host:port", with the host that it was told.
  const std::string& address() const { return address_; }
  int pid() const { return pid_; }

 private:
  int pid_ = -1;
  int life_ = -1;  // of a pipe: its end is the store's
  std::string address_;
};

}  // namespace cohort::internal::cluster
