// SPDX-License-Identifier: Apache-2.0
//
// The tasks of a job on this host, and what each of them is told.
#pragma once

#include <string>
#include <vector>

namespace cohortrun {

struct JobOptions {
  int workers = 0;
  bool chief = false;
  bool evaluator = false;
  /// Task i listens at port_base + i. 0: at ports that are free now.
  int port_base = 0;
  /// Each task is kept on so many cores of its own. 0: an equal share of those that are allowed
  /// here, as long as there is one for each.
  int cpus_per_task = 0;
  bool bind = true;
};

struct Task {
  std::string type = {};
  int index = 0;
  /// "worker 1".
  std::string name() const { return type + " " + std::to_string(index); }
  std::vector<std::string> environment = {};  ///< "NAME=value", beside what is there already.
  std::vector<int> cpus = {};                 ///< Empty: as cohortrun itself.
};

/// Chief, workers, evaluator, in this order.
/// Errors: std::runtime_error if there are not as many ports, or cores as are asked for.
std::vector<Task> plan_job(const JobOptions& options);

}  // namespace cohortrun
