// SPDX-License-Identifier: Apache-2.0
//
// Runs the functions that a coordinator schedules here, one after the other, on a thread of its
// own.
//
//   WorkerService worker({.place = place, .check_session = ...});
//   RpcServer server(options, worker.methods());
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "cohort/coordinator/internal/worker_place.h"
#include "cohort/rpc/server.h"
#include "cohort/strategy/strategy.h"

namespace cohort::internal::coordinator {

/// Threads: thread-safe.
class WorkerService {
 public:
  struct Options {
    WorkerPlace place = {};
    /// Throws unless the caller is this job's coordinator. Does not block.
    std::function<void(uint64_t session, uint64_t generation)> check_session = {};
    /// In whose scope the functions of a session run, made on the thread that runs them. None:
    /// under the default strategy.
    std::function<Strategy(const WorkerPlace&)> make_strategy = {};
    /// A function begins.
    std::function<void(const Strategy&)> begin_function = {};
    /// The strategy's variable of a name; none: Unimplemented.
    std::function<Variable(const Strategy&, const std::string& name)> variable = {};
  };
  explicit WorkerService(Options options);
  /// Blocks: until the function that runs has ended.
  ~WorkerService();
  WorkerService(const WorkerService&) = delete;
  WorkerService& operator=(const WorkerService&) = delete;

  std::map<std::string, rpc::RpcHandler> methods();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::internal::coordinator
