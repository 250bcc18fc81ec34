// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/roles.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "cohort/base/check.h"

namespace cohort::internal::cluster {
namespace {

constexpr std::array<std::string_view, 4> kJobs = {"chief", "worker", "evaluator", "ps"};
constexpr const char* kJobsText = "('chief', 'worker', 'evaluator', 'ps')";

bool is_allowed(std::string_view job) {
  return std::find(kJobs.begin(), kJobs.end(), job) != kJobs.end();
}

int count_of_tasks(const ClusterSpec& spec, const char* job) {
  return spec.has_job(job) ? spec.num_tasks(job) : 0;
}

}  // namespace

void check_cluster(const ClusterSpec& spec, const TaskName& task, const std::string& source) {
  // Where it stands in the JSON of the variable, if it does.
  const auto at = [&](const std::string& path) {
    return source.empty() ? std::string() : str_cat(" (at ", source, ".", path, ")");
  };
  for (const std::string& job : spec.jobs()) {
    COHORT_CHECK_ARG(is_allowed(job),
                     "[cluster] Disallowed task type found in cluster spec. Allowed types are ",
                     kJobsText, " and the cluster spec is ", spec, at("cluster." + job));
  }
  COHORT_CHECK_ARG(is_allowed(task.type), "[cluster] Unrecognized task_type: ", task.type,
                   ", valid task types are: ", kJobsText, at("task.type"));
  COHORT_CHECK_ARG(spec.has_job(task.type) || task.type == "evaluator", "[cluster] `task_type` '",
                   task.type, "' not found in cluster_spec; it is ", spec, at("task.type"));
  for (const char* job : {"chief", "evaluator"}) {
    COHORT_CHECK_ARG(count_of_tasks(spec, job) <= 1, "[cluster] There must be at most one '", job,
                     "' job. The cluster is ", spec, at(str_cat("cluster.", job)));
  }
  COHORT_CHECK_ARG(task.id >= 0, "[cluster] expected a task_id of at least 0, got ", task.id,
                   at("task.index"));
  COHORT_CHECK_ARG(!spec.has_job(task.type) || spec.as_map().at(task.type).count(task.id) > 0,
                   "[cluster] The `task_id` ", task.id, " exceeds the maximum id of ", task.type,
                   ": the cluster has ", spec, at("task.index"));
}

bool is_chief(const ClusterSpec& spec, const TaskName& task) {
  check_cluster(spec, task);
  if (task.type == "chief" || task.type == "evaluator") return true;
  return !spec.has_job("chief") && task.type == "worker" && task.id == 0;
}

int worker_count(const ClusterSpec& spec, const TaskName& task) {
  check_cluster(spec, task);
  COHORT_CHECK_ARG(
      task.type != "ps",
      "[cluster] Unexpected `task_type` 'ps': expected a task that computes, and parameter "
      "servers do not");
  if (task.type == "evaluator") return std::max(count_of_tasks(spec, "evaluator"), 1);
  return count_of_tasks(spec, "chief") + count_of_tasks(spec, "worker");
}

int id_in_cluster(const ClusterSpec& spec, const TaskName& task) {
  check_cluster(spec, task);
  COHORT_CHECK_ARG(task.type != "ps",
                   "[cluster] There is no id for task_type 'ps': it is no replica of the job");
  if (task.type == "chief") return 0;
  return task.type == "worker" ? task.id + count_of_tasks(spec, "chief") : task.id;
}

std::vector<std::string> worker_addresses(const ClusterSpec& spec) {
  std::vector<std::string> out;
  for (const char* job : {"chief", "worker"}) {
    if (!spec.has_job(job)) continue;
    for (const std::string& address : spec.job_tasks(job)) {
      COHORT_CHECK_ARG(!address.empty(), "[cluster] expected the addresses of all tasks of job '",
                       job, "', got ", spec,
                       ": every worker has to know the addresses of all others");
      out.push_back(address);
    }
  }
  return out;
}

}  // namespace cohort::internal::cluster
