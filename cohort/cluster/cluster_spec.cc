// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/cluster_spec.h"

#include <ostream>

#include "cohort/base/check.h"

namespace cohort {

ClusterSpec::ClusterSpec(std::initializer_list<Jobs::value_type> jobs)
    : jobs_(by_index(Jobs(jobs))) {}

ClusterSpec::SparseJobs ClusterSpec::by_index(const Jobs& jobs) {
  SparseJobs out;
  for (const auto& [job, addresses] : jobs) {
    std::map<int, std::string>& tasks = out[job];
    for (const std::string& address : addresses) {
      tasks.emplace(static_cast<int>(tasks.size()), address);
    }
  }
  return out;
}

ClusterSpec ClusterSpec::sparse(SparseJobs jobs) {
  for (const auto& [job, tasks] : jobs) {
    COHORT_CHECK_ARG(tasks.empty() || tasks.begin()->first >= 0,
                     "[cluster_spec] expected indices of at least 0 in job '", job, "', got ",
                     tasks.begin()->first);
  }
  ClusterSpec spec;
  spec.jobs_ = std::move(jobs);
  return spec;
}

std::vector<std::string> ClusterSpec::jobs() const {
  std::vector<std::string> names;
  for (const auto& [job, tasks] : jobs_) names.push_back(job);
  return names;
}

const std::map<int, std::string>& ClusterSpec::tasks_of(const std::string& job) const {
  const auto found = jobs_.find(job);
  COHORT_CHECK_ARG(found != jobs_.end(), "[cluster_spec] No such job in cluster: '", job,
                   "'; it has ", to_string());
  return found->second;
}

int ClusterSpec::num_tasks(const std::string& job) const {
  return static_cast<int>(tasks_of(job).size());
}

std::vector<int> ClusterSpec::task_indices(const std::string& job) const {
  std::vector<int> indices;
  for (const auto& [index, address] : tasks_of(job)) indices.push_back(index);
  return indices;
}

const std::string& ClusterSpec::task_address(const std::string& job, int index) const {
  const auto& tasks = tasks_of(job);
  const auto found = tasks.find(index);
  COHORT_CHECK_ARG(found != tasks.end(), "[cluster_spec] No task with index ", index, " in job '",
                   job, "'; it has ", to_string());
  return found->second;
}

std::vector<std::string> ClusterSpec::job_tasks(const std::string& job) const {
  const auto& tasks = tasks_of(job);
  std::vector<std::string> out(tasks.empty() ? 0
                                             : static_cast<std::size_t>(tasks.rbegin()->first) + 1);
  for (const auto& [index, address] : tasks) out[static_cast<std::size_t>(index)] = address;
  return out;
}

std::string ClusterSpec::to_string() const {
  std::vector<std::string> texts;
  for (const auto& [job, tasks] : jobs_) {
    const bool dense = tasks.empty() || tasks.rbegin()->first + 1 == static_cast<int>(tasks.size());
    std::vector<std::string> parts;
    for (const auto& [index, address] : tasks) {
      parts.push_back(dense ? address : str_cat(index, ": ", address));
    }
    texts.push_back(str_cat(job, ": ", dense ? "[" : "{", join(parts, ", "), dense ? "]" : "}"));
  }
  return str_cat("ClusterSpec(", join(texts, ", "), ")");
}

std::ostream& operator<<(std::ostream& out, const ClusterSpec& spec) {
  return out << spec.to_string();
}

}  // namespace cohort
