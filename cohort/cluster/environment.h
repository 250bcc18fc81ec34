// SPDX-License-Identifier: Apache-2.0
//
// Resolvers of what schedulers and launchers write into environment variables.
//
//   MultiWorkerMirroredStrategy strategy(
//       {.cluster_resolver = std::make_shared<TFConfigClusterResolver>()});
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/cluster/cluster_resolver.h"

namespace cohort {

/// Reads TF_CONFIG, and where that is not set Vertex AI's CLUSTER_SPEC, at each call:
///
///   {"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}
///
/// Neither set, or "{}", is no cluster. A job's tasks may be a list, or an object by index
/// (Kubeflow's dynamic workers). An index may be a text. Jobs named master, and Vertex's
/// workerpool0 to 3, are chief (the first two), worker, ps and evaluator. Further keys are ignored.
/// Errors, of all members: InvalidArgument that names the variable and the position in it.
/// TF: cluster_resolver.TFConfigClusterResolver.
class TFConfigClusterResolver : public ClusterResolver {
 public:
  explicit TFConfigClusterResolver(TaskOptions task = {}) : ClusterResolver(std::move(task)) {}
  ClusterSpec cluster_spec() const override;
  /// "session_master" where it is given; "" of a cluster with one task.
  std::string master(const TaskOptions& task = {}) const override;

 protected:
  TaskOptions do_task() const override;
};

struct SlurmOptions {
  /// Names and numbers of tasks; ranks are handed out over them by name. Empty: all are workers.
  std::map<std::string, int> jobs = {};
  int port_base = 8888;  ///< Of the first task of each node; the next one has the next port.
  /// By host; empty: what Slurm says.
  std::map<std::string, int> tasks_per_node = {};
  std::optional<int> gpus_per_node = {};  ///< Default: those in CUDA_VISIBLE_DEVICES.
  std::optional<int> gpus_per_task = {};  ///< Default: those of a node shared out over its tasks.
  bool auto_set_gpu = true;               ///< With GPUs: sets CUDA_VISIBLE_DEVICES to this task's.
  std::string rpc_layer = "grpc";
};

/// The tasks of a Slurm job step, in the order of its nodes, blockwise.
/// TF: cluster_resolver.SlurmClusterResolver, which sorts the nodes by name: n10 before n2.
class SlurmClusterResolver : public ClusterResolver {
 public:
  /// Errors: FailedPrecondition for a variable that is not there, for jobs of another number of
  ///         tasks than the step has, and for more GPUs than a node has; InvalidArgument for what
  ///         is no list of hosts or of tasks per node.
  explicit SlurmClusterResolver(SlurmOptions options = {});
  ClusterSpec cluster_spec() const override { return ClusterSpec(jobs_); }
  std::map<std::string, int> num_accelerators() const override;
  /// The job and the index of this process.
  std::pair<std::string, int> get_task_info() const { return {*task_type(), *task_id()}; }

 private:
  ClusterSpec::Jobs jobs_;
  int gpus_per_task_ = 0;
};

struct SageMakerOptions {
  int port = 2223;
  TaskOptions task = {};
};

/// Reads SM_HOSTS and SM_CURRENT_HOST; all hosts, sorted, are workers.
/// Errors: FailedPrecondition for a variable that is not there; InvalidArgument for another text.
/// TF: cluster_resolver.SageMakerClusterResolver.
class SageMakerClusterResolver : public ClusterResolver {
 public:
  explicit SageMakerClusterResolver(SageMakerOptions options = {});
  ClusterSpec cluster_spec() const override { return ClusterSpec(jobs_); }

 private:
  ClusterSpec::Jobs jobs_;
};

struct LauncherOptions {
  /// Task r listens at port_base + r; over several hosts at port_base + 1 + r, since rank 0 serves
  /// the list of addresses at port_base. Default: MASTER_PORT + 1 where it is set, else 29600.
  std::optional<int> port_base = {};
  /// Until the ranks of all hosts have come.
  std::chrono::seconds start_timeout{300};
};

/// Ranks that torchrun (RANK, WORLD_SIZE), horovodrun (HOROVOD_RANK), Open MPI
/// (OMPI_COMM_WORLD_RANK) or another MPI (PMI_RANK) started, or one process on each node that
/// Kubeflow's Trainer has made for torchrun (PET_NODE_RANK, PET_NNODES): all are workers. Over
/// several hosts they meet at MASTER_ADDR (PET_MASTER_ADDR), the host of rank 0, to exchange their
/// addresses; the launcher's own rendezvous is not used.
/// Blocks: over several hosts until all ranks have come.
/// Errors: FailedPrecondition without any of these, over several hosts without MASTER_ADDR, and for
///         several processes a node (PET_NPROC_PER_NODE), which cohortrun has to start;
///         InvalidArgument for texts that are no numbers, and a rank out of range;
///         DeadlineExceeded that names the address if not all come.
class LauncherClusterResolver : public ClusterResolver {
 public:
  explicit LauncherClusterResolver(LauncherOptions options = {});
  ClusterSpec cluster_spec() const override { return ClusterSpec(jobs_); }
  /// True where one of these launchers has started this process.
  static bool is_present();

 private:
  ClusterSpec::Jobs jobs_;
};

/// What fits this process: TF_CONFIG or CLUSTER_SPEC, a launcher's ranks of torchrun, a node of
/// Kubeflow's Trainer, SageMaker, a step of several tasks of Slurm, ranks of MPI or Horovod. Null:
/// none, it is alone.
/// Errors: as the resolver that fits. TF: none; TensorFlow asks TF_CONFIG alone.
std::shared_ptr<ClusterResolver> detect_cluster();

namespace internal::cluster {
/// What detect_cluster() takes, and why; empty: nothing.
struct ClusterSource {
  std::string resolver = {};
  std::string reason = {};
};
ClusterSource cluster_source();
/// "n[01-02],m" as n01, n02, m. Errors: InvalidArgument.
std::vector<std::string> expand_hostlist(const std::string& text);
/// "3(x2),1" as 3, 3, 1. Errors: InvalidArgument.
std::vector<int> expand_tasks_per_node(const std::string& text);
}  // namespace internal::cluster

}  // namespace cohort
