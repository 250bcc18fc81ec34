// SPDX-License-Identifier: Apache-2.0
//
// The tasks of a job, who of them is on which node, and what each of them is told.
#pragma once

#include <string>
#include <vector>

#include "job_security.h"

namespace cohortrun {

struct Task {
  std::string type = {};
  int index = 0;
  int rank = -1;  ///< Of the chief and the workers; -1: it has none.
  /// "worker 1".
  std::string name() const { return type + " " + std::to_string(index); }
};

struct TaskCounts {
  int workers = 0;
  int ps = 0;
  bool chief = false;
  bool evaluator = false;
};

/// All tasks: chief, workers, parameter servers, evaluator, in this order.
/// Errors: std::runtime_error if there is neither a worker nor a chief.
std::vector<Task> tasks_of(const TaskCounts& counts);

/// The tasks of each node in turn, as many as it has slots.
/// Errors: std::runtime_error if there are more tasks than slots.
std::vector<std::vector<Task>> place(const std::vector<Task>& tasks, const std::vector<int>& slots);

/// Where a node's tasks listen in one attempt.
struct NodeAddress {
  std::string host = {};
  std::vector<int> ports = {};  ///< One for each task, and kMorePorts.
};
/// MASTER_PORT; the one above it, which programs take as theirs; and the store's.
inline constexpr std::size_t kMorePorts = 3;

/// What one node is told of one attempt.
struct NodePlan {
  std::string run_id = {};
  int attempt = 0;
  int max_restarts = 0;
  std::string cluster = {};  ///< TF_CONFIG's "cluster".
  std::vector<Task> tasks = {};
  int world_size = 0;  ///< Ranks of the job.
  int node = 0;
  int nodes = 1;
  std::string master_addr = {};
  int master_port = 0;
  int store_port = 0;  ///< Of the store that node 0 keeps, at master_addr; 0: it keeps none.
  TaskSecurity security = {};
};

/// The plans of all nodes for an attempt; `common` has what they share.
/// Errors: as security_of_nodes().
std::vector<NodePlan> plans_of(const NodePlan& common, const SecuritySettings& security,
                               const std::vector<std::vector<Task>>& tasks_of_nodes,
                               const std::vector<NodeAddress>& addresses);

std::string to_json(const NodePlan& plan);
/// Errors: std::runtime_error for a text that is none.
NodePlan plan_from_json(const std::string& text);

/// The job's store for tasks; "" if it has none.
std::string store_address(const NodePlan& plan);

/// What one of the node's tasks finds in its environment beside its secrets: "NAME=value", or
/// "NAME" of what it must not find there.
std::vector<std::string> environment_of(const NodePlan& plan, std::size_t task);

/// The cores of each of so many tasks of this host: as many as are wanted, or an equal share. Empty
/// for all where there are fewer cores than tasks: the system shares them out better then.
/// Errors: std::runtime_error if there are fewer cores than are wanted.
std::vector<std::vector<int>> cpus_of_tasks(std::size_t tasks, int wanted_each);

}  // namespace cohortrun
