// SPDX-License-Identifier: Apache-2.0
//
// Where the cluster is read from, and which of its tasks this process is.
//
//   MultiWorkerMirroredStrategy strategy({.cluster_resolver =
//   std::make_shared<SimpleClusterResolver>(
//       ClusterSpec({{"worker", {"localhost:2222", "localhost:2223"}}}),
//       TaskOptions{.task_type = "worker", .task_id = 0})});
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cluster/cluster_spec.h"

namespace cohort {

/// What the program itself states about its task; the rest comes from the resolver's source.
struct TaskOptions {
  std::optional<std::string> task_type = {};
  std::optional<int> task_id = {};
  std::optional<std::string> rpc_layer = {};
  std::optional<std::string> environment = {};
};

/// Base of all resolvers. Threads: thread-compatible. TF: cluster_resolver.ClusterResolver.
class ClusterResolver {
 public:
  explicit ClusterResolver(TaskOptions task = {}) : task_(std::move(task)) {}
  virtual ~ClusterResolver() = default;
  ClusterResolver(const ClusterResolver&) = delete;
  ClusterResolver& operator=(const ClusterResolver&) = delete;

  /// As its source states it now; empty for a process without a cluster.
  virtual ClusterSpec cluster_spec() const = 0;
  /// "grpc://host:port" of a task, by default this one; empty where there is no cluster.
  /// Errors: InvalidArgument for a task that is not there.
  virtual std::string master(const TaskOptions& task = {}) const;
  /// The number of a task's devices other than CPUs, by kind, such as "GPU".
  virtual std::map<std::string, int> num_accelerators() const { return {}; }

  // Of this process.

  std::optional<std::string> task_type() const;
  std::optional<int> task_id() const;
  std::optional<std::string> rpc_layer() const;
  /// "" unless something says where the job runs, such as "cloud".
  std::string environment() const;
  /// From now on the task is this one, whatever the source says.
  void set_task(std::string task_type, int task_id);

 protected:
  /// What the source states about this task. Default: nothing.
  virtual TaskOptions do_task() const { return {}; }

 private:
  TaskOptions task_;
};

/// A resolver that is given everything. TF: cluster_resolver.SimpleClusterResolver.
class SimpleClusterResolver : public ClusterResolver {
 public:
  explicit SimpleClusterResolver(ClusterSpec spec, TaskOptions task = {},
                                 std::map<std::string, int> num_accelerators = {});
  ClusterSpec cluster_spec() const override { return spec_; }
  std::map<std::string, int> num_accelerators() const override { return num_accelerators_; }

 private:
  const ClusterSpec spec_;
  const std::map<std::string, int> num_accelerators_;
};

/// Several as one: lists of a job are joined; where one has a map of indices, all become maps.
/// What is not given of the task comes from the first one. TF: cluster_resolver.UnionResolver.
class UnionResolver : public ClusterResolver {
 public:
  /// Errors: InvalidArgument for none, and for an empty one.
  explicit UnionResolver(std::vector<std::shared_ptr<ClusterResolver>> parts,
                         TaskOptions task = {});
  /// Errors: InvalidArgument that names the indices which two maps of one job have.
  ClusterSpec cluster_spec() const override;
  std::string master(const TaskOptions& task = {}) const override;
  std::map<std::string, int> num_accelerators() const override;

 protected:
  TaskOptions do_task() const override;

 private:
  const std::vector<std::shared_ptr<ClusterResolver>> parts_;
};

}  // namespace cohort
