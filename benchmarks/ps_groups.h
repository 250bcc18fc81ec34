// SPDX-License-Identifier: Apache-2.0
//
// Two parameter servers that have copies of each other's variables, for ps_bench: each a process,
// beside the job's store in this one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cohort/cluster/store/store_server.h"
#include "cohort/coordinator/parameters/parameter_servers.h"
#include "process.h"

namespace cohort::bench {

class PsGroups {
 public:
  /// `program`: this one, which serves as serve_group() when it is told.
  PsGroups(const std::string& program, std::chrono::milliseconds lease);
  std::shared_ptr<internal::coordinator::ParameterServers> connect() const;
  /// kill -9.
  void kill(int task) const;
  int process_group(int task) const { return processes_[task]->process_group(); }

 private:
  const internal::cluster::StoreServer store_{internal::cluster::StoreServerOptions{}};
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<ContenderProcess>> processes_;
};

/// PROGRAM --serve-group TASK STORE LEASE_MS ADDRESS ADDRESS
int serve_group(const std::vector<std::string>& words);

/// Pushes all the time, kills the primary, and says how long no push was acknowledged.
int time_failovers(const std::string& program, int rounds, std::chrono::milliseconds lease);

}  // namespace cohort::bench
