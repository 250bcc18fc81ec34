// SPDX-License-Identifier: Apache-2.0
//
// The tasks of a job, by the names of their jobs:
//
//   ClusterSpec spec({{"chief", {"a:2222"}}, {"worker", {"b:2222", "c:2222"}}});
//   spec.task_address("worker", 1);   // "c:2222"
#pragma once

#include <concepts>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

namespace cohort {

/// Value; immutable. TF: tf.train.ClusterSpec.
class ClusterSpec {
 public:
  using Jobs = std::map<std::string, std::vector<std::string>>;
  using SparseJobs = std::map<std::string, std::map<int, std::string>>;

  /// No cluster: this process is alone.
  ClusterSpec() = default;
  /// The addresses "host:port" of each job's tasks, in the order of their indices.
  ClusterSpec(std::initializer_list<Jobs::value_type> jobs);
  // A template, so that braces are never read as a map of its own.
  template <std::same_as<Jobs> Map>
  explicit ClusterSpec(const Map& jobs) : jobs_(by_index(jobs)) {}
  /// Of each job some tasks, by their indices. Errors: InvalidArgument for a negative index.
  static ClusterSpec sparse(SparseJobs jobs);

  bool empty() const { return jobs_.empty(); }
  /// The jobs' names, sorted.
  std::vector<std::string> jobs() const;
  bool has_job(const std::string& job) const { return jobs_.count(job) > 0; }

  // Errors, of all: InvalidArgument for a job that is not there.

  int num_tasks(const std::string& job) const;
  /// Sorted.
  std::vector<int> task_indices(const std::string& job) const;
  /// Errors: InvalidArgument for a task that is not there.
  const std::string& task_address(const std::string& job, int index) const;
  /// By index; those that are missing are empty.
  std::vector<std::string> job_tasks(const std::string& job) const;

  const SparseJobs& as_map() const { return jobs_; }
  bool operator==(const ClusterSpec&) const = default;
  /// "ClusterSpec(worker: [a:1, b:1])"; of a job with gaps "worker: {3: d:1}".
  std::string to_string() const;

 private:
  static SparseJobs by_index(const Jobs& jobs);
  const std::map<int, std::string>& tasks_of(const std::string& job) const;
  SparseJobs jobs_;
};

std::ostream& operator<<(std::ostream& out, const ClusterSpec& spec);

}  // namespace cohort
