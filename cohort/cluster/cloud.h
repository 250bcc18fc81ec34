// SPDX-License-Identifier: Apache-2.0
//
// Resolvers that ask a cloud's own interface who is in the job.
//
//   KubernetesClusterResolver resolver({.job_to_label_mapping = {{"worker", {"job-name=mnist"}}}});
//   resolver.set_task("worker", index);    // which Kubernetes does not say
//
// Both need libcurl at run time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cluster/cluster_resolver.h"

namespace cohort {

struct KubernetesOptions {
  /// Label selectors of each job's pods.
  std::map<std::string, std::vector<std::string>> job_to_label_mapping = {
      {"worker", {"job-name=tensorflow"}}};
  int tf_server_port = 8470;
  std::string rpc_layer = "grpc";
  /// Of the pods; "" for those of all. Default: this pod's own, outside of a pod all.
  std::optional<std::string> name_space = {};
  /// "https://host:port". Default: this pod's, of KUBERNETES_SERVICE_HOST. From outside of the
  /// cluster `kubectl proxy` is one: "http://127.0.0.1:8001".
  std::string api_server = {};
  /// Where a pod finds its token, its namespace and the cluster's certificate.
  std::string service_account = "/var/run/secrets/kubernetes.io/serviceaccount";
};

/// The pods of a Kubernetes cluster, listed anew at each call: of each selector in the order of
/// their completion indices (an indexed Job has them), else of their names; at their own addresses.
/// Errors: FailedPrecondition outside of a cluster without api_server, for a pod that is not
///         running, and for what the server refuses (pods have to be allowed to list pods);
///         Unavailable if it does not answer.
/// Blocks: until it has answered.
/// TF: cluster_resolver.KubernetesClusterResolver, which takes the addresses of the pods' hosts.
class KubernetesClusterResolver : public ClusterResolver {
 public:
  explicit KubernetesClusterResolver(KubernetesOptions options = {});
  ClusterSpec cluster_spec() const override;

 private:
  const KubernetesOptions options_;
};

struct GCEOptions {
  std::string instance_group = {};
  int port = 8470;
  std::string task_type = "worker";
  /// Default: the index of this machine's address among all.
  std::optional<int> task_id = {};
  std::string rpc_layer = "grpc";
  std::string project = {};  ///< Default: this machine's.
  std::string zone = {};     ///< Default: this machine's.
  std::string api = "https://compute.googleapis.com/compute/v1";
  /// Default: GCE_METADATA_HOST, else metadata.google.internal.
  std::string metadata_host = {};
};

/// The running machines of a Google Compute Engine instance group, sorted by their addresses as
/// texts. They need the permission to read Compute Engine.
/// Errors: InvalidArgument without a group; FailedPrecondition for what the server refuses, and if
///         this machine is none of them; Unavailable if it does not answer.
/// Blocks: until it has answered. TF: cluster_resolver.GCEClusterResolver.
class GCEClusterResolver : public ClusterResolver {
 public:
  explicit GCEClusterResolver(GCEOptions options);
  ClusterSpec cluster_spec() const override;

 protected:
  TaskOptions do_task() const override;

 private:
  const GCEOptions options_;
};

/// For programs that were written for TPUs, to tell them that LibTorch has none: the constructor
/// takes the TPU's name, else what KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_WORKER_HOSTNAMES, TPU_NAME
/// or TPU_CONFIG say, and always throws.
/// TF: cluster_resolver.TPUClusterResolver.
class TPUClusterResolver : public ClusterResolver {
 public:
  /// Errors: Unimplemented that names the TPU; InvalidArgument for a TPU_CONFIG that is no JSON;
  ///         FailedPrecondition where nothing names one.
  explicit TPUClusterResolver(const std::string& tpu = {});
  ClusterSpec cluster_spec() const override { return {}; }
};

}  // namespace cohort
