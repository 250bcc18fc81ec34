// SPDX-License-Identifier: Apache-2.0
//
// Leads a job over its nodes: starts all tasks when all nodes are there, ends all when one has
// failed, and starts all again as long as the restart policy says so.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "door.h"
#include "job.h"
#include "node.h"

namespace cohortrun {

/// Which failures are met by a restart: none, all, those with an exit code of at least 128
/// (signals, and what asks for it; Kubeflow's ExitCode policy).
enum class RestartPolicy { kNever, kOnFailure, kExitCode };

struct JobSettings {
  /// Of each node. Empty: workers only, as many on each node as it has slots.
  std::vector<std::vector<Task>> tasks = {};
  std::string run_id = {};
  RestartPolicy policy = RestartPolicy::kOnFailure;
  int max_restarts = 0;
  std::chrono::seconds nodes_timeout{300};  ///< Until all nodes have come.
  SecuritySettings security = {};
};

/// Returns the exit code for all: 0, or that of the task that failed first (128 + the number of the
/// signal that killed it), whose name and last lines go to standard error. "First" is one that a
/// signal killed, then one whose exit code does not say that it has lost another (134). Parameter
/// servers are ended when all others have ended. door: where nodes come in; null: all are there.
/// Blocks: until every task has ended. Errors: std::runtime_error if the system has no processes,
///         cores or ports, and if nodes do not come.
int lead_job(const JobSettings& settings, std::vector<std::unique_ptr<Node>> nodes, Door* door,
             Signals& signals);

}  // namespace cohortrun
