// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/cluster_resolver.h"

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"

namespace cohort {
namespace {

bool is_dense(const std::map<int, std::string>& tasks) {
  return tasks.empty() || tasks.rbegin()->first + 1 == static_cast<int>(tasks.size());
}

// What several resolvers have of one job.
std::map<int, std::string> merged_tasks(const std::string& job,
                                        const std::vector<std::map<int, std::string>>& parts) {
  const bool all_lists = std::all_of(parts.begin(), parts.end(), is_dense);
  std::map<int, std::string> tasks;
  std::vector<std::string> twice;
  for (const auto& part : parts) {
    for (const auto& [index, address] : part) {
      const int at = all_lists ? static_cast<int>(tasks.size()) : index;
      if (!tasks.emplace(at, address).second) twice.push_back(std::to_string(index));
    }
  }
  COHORT_CHECK_ARG(twice.empty(),
                   "[union_resolver] Duplicate keys detected when merging two ClusterSpecs: ",
                   join(twice, ", "), " in job '", job, "'");
  return tasks;
}

}  // namespace

std::optional<std::string> ClusterResolver::task_type() const {
  return task_.task_type ? task_.task_type : do_task().task_type;
}
std::optional<int> ClusterResolver::task_id() const {
  return task_.task_id ? task_.task_id : do_task().task_id;
}
std::optional<std::string> ClusterResolver::rpc_layer() const {
  return task_.rpc_layer ? task_.rpc_layer : do_task().rpc_layer;
}
std::string ClusterResolver::environment() const {
  return task_.environment ? *task_.environment : do_task().environment.value_or("");
}

void ClusterResolver::set_task(std::string task_type, int task_id) {
  task_.task_type = std::move(task_type);
  task_.task_id = task_id;
}

std::string ClusterResolver::master(const TaskOptions& task) const {
  const ClusterSpec spec = cluster_spec();
  const auto type = task.task_type ? task.task_type : task_type();
  const auto id = task.task_id ? task.task_id : task_id();
  if (spec.empty() || !type || !id) return {};
  const auto layer = task.rpc_layer ? task.rpc_layer : rpc_layer();
  const std::string& address = spec.task_address(*type, *id);
  return layer && !layer->empty() ? *layer + "://" + address : address;
}

SimpleClusterResolver::SimpleClusterResolver(ClusterSpec spec, TaskOptions task,
                                             std::map<std::string, int> num_accelerators)
    : ClusterResolver(std::move(task)),
      spec_(std::move(spec)),
      num_accelerators_(std::move(num_accelerators)) {}

UnionResolver::UnionResolver(std::vector<std::shared_ptr<ClusterResolver>> parts, TaskOptions task)
    : ClusterResolver(std::move(task)), parts_(std::move(parts)) {
  COHORT_CHECK_ARG(!parts_.empty(),
                   "[union_resolver] At least one ClusterResolver is required, got none");
  for (const auto& part : parts_) {
    COHORT_CHECK_ARG(part != nullptr, "[union_resolver] expected ClusterResolvers, got nullptr");
  }
}

ClusterSpec UnionResolver::cluster_spec() const {
  std::map<std::string, std::vector<std::map<int, std::string>>> parts;
  for (const auto& resolver : parts_) {
    const ClusterSpec spec = resolver->cluster_spec();
    for (const auto& [job, tasks] : spec.as_map()) parts[job].push_back(tasks);
  }
  ClusterSpec::SparseJobs jobs;
  for (const auto& [job, tasks] : parts) jobs[job] = merged_tasks(job, tasks);
  return ClusterSpec::sparse(std::move(jobs));
}

std::string UnionResolver::master(const TaskOptions& task) const {
  if (task.task_type || task.task_id) return ClusterResolver::master(task);
  return parts_.front()->master(task);
}

std::map<std::string, int> UnionResolver::num_accelerators() const {
  return parts_.front()->num_accelerators();
}

TaskOptions UnionResolver::do_task() const {
  const ClusterResolver& first = *parts_.front();
  return {.task_type = first.task_type(),
          .task_id = first.task_id(),
          .rpc_layer = first.rpc_layer(),
          .environment = first.environment()};
}

}  // namespace cohort
