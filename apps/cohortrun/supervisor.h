// SPDX-License-Identifier: Apache-2.0
//
// Runs the tasks of a job until all have ended: passes on what they write and the signals that
// end programs, and ends all when one has failed.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "job.h"

namespace cohortrun {

struct SupervisorOptions {
  /// Between SIGTERM and SIGKILL.
  std::chrono::seconds grace{30};
};

/// Returns the exit code for all: 0, or that of the task that failed first (128 + the number of the
/// signal that killed it), whose name goes to standard error.
/// Blocks: until every task has ended. Errors: std::runtime_error if the system has no processes.
int run_job(const std::vector<Task>& tasks, const std::vector<std::string>& command,
            const SupervisorOptions& options);

}  // namespace cohortrun
