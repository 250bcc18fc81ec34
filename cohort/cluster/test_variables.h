// SPDX-License-Identifier: Apache-2.0
//
// For tests: environment variables that are gone again at the end.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace cohort::testing {

/// Sets these, and unsets all others that resolvers read.
/// Threads: of one thread, while no other one reads the environment.
class JobVariables {
 public:
  JobVariables(std::initializer_list<std::pair<const char*, std::string>> variables) {
    clear();
    for (const auto& [name, value] : variables) {
      names_.push_back(name);
      ::setenv(name, value.c_str(), 1);
    }
  }
  ~JobVariables() {
    for (const char* name : names_) ::unsetenv(name);
  }
  JobVariables(const JobVariables&) = delete;
  JobVariables& operator=(const JobVariables&) = delete;

 private:
  static void clear() {
    for (const char* name : {"TF_CONFIG",
                             "CLUSTER_SPEC",
                             "SM_HOSTS",
                             "SM_CURRENT_HOST",
                             "SLURM_PROCID",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_STEP_NODELIST",
                             "SLURM_STEP_TASKS_PER_NODE",
                             "CUDA_VISIBLE_DEVICES",
                             "RANK",
                             "WORLD_SIZE",
                             "LOCAL_WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "SLURM_DISTRIBUTION",
                             "KUBERNETES_SERVICE_HOST",
                             "KUBERNETES_SERVICE_PORT",
                             "KUBERNETES_SERVICE_PORT_HTTPS",
                             "GCE_METADATA_HOST",
                             "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS",
                             "TPU_WORKER_HOSTNAMES",
                             "TPU_NAME",
                             "TPU_CONFIG",
                             "PET_NNODES",
                             "PET_NODE_RANK",
                             "PET_NPROC_PER_NODE",
                             "PET_MASTER_ADDR",
                             "PET_MASTER_PORT",
                             "HOROVOD_RANK",
                             "HOROVOD_SIZE",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "PMI_RANK",
                             "PMI_SIZE"}) {
      ::unsetenv(name);
    }
  }
  std::vector<const char*> names_;
};

}  // namespace cohort::testing
