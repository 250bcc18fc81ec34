// SPDX-License-Identifier: Apache-2.0
//
// SageMaker, and the launchers that give each process its rank.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "cohort/base/check.h"
#include "cohort/cluster/environment.h"
#include "cohort/cluster/internal/variables.h"

namespace cohort {
namespace {

using internal::job_variable;
using internal::needed_variable;
using internal::whole_number;

// The variables of one launcher.
struct LauncherNames {
  const char* rank;
  const char* size;
  const char* local_size;
};
constexpr LauncherNames kTorchrun = {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
constexpr std::array<LauncherNames, 4> kLaunchers = {{
    kTorchrun,
    {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
}};

bool has_started_us(const LauncherNames& names) {
  return job_variable(names.rank) && job_variable(names.size);
}

const LauncherNames* launcher() {
  const auto found = std::find_if(kLaunchers.begin(), kLaunchers.end(), has_started_us);
  return found == kLaunchers.end() ? nullptr : &*found;
}

constexpr int kDefaultPortBase = 29'600;

int port_base_of(const LauncherOptions& options) {
  if (options.port_base) return *options.port_base;
  const auto master = job_variable("MASTER_PORT");
  return master ? whole_number("MASTER_PORT", *master, 1) + 1 : kDefaultPortBase;
}

std::vector<std::string> sage_maker_hosts() {
  const std::string text = needed_variable("SM_HOSTS", "Not running in a SageMaker job?");
  std::vector<std::string> hosts;
  try {
    hosts = nlohmann::json::parse(text).get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    throw InvalidArgument(str_cat(
        "[sage_maker] expected SM_HOSTS to be a JSON list of host names, got \"", text, "\""));
  }
  std::sort(hosts.begin(), hosts.end());
  return hosts;
}

}  // namespace

SageMakerClusterResolver::SageMakerClusterResolver(SageMakerOptions options)
    : ClusterResolver(options.task) {
  const std::vector<std::string> hosts = sage_maker_hosts();
  const std::string here = needed_variable("SM_CURRENT_HOST", "Not running in a SageMaker job?");
  const auto found = std::find(hosts.begin(), hosts.end(), here);
  COHORT_CHECK_ARG(found != hosts.end(),
                   "[sage_maker] expected SM_CURRENT_HOST to be one of SM_HOSTS, ",
                   bracketed(hosts), ", got \"", here, "\"");
  if (!options.task.task_type && !options.task.task_id) {
    set_task("worker", static_cast<int>(found - hosts.begin()));
  }
  for (const std::string& host : hosts) {
    jobs_["worker"].push_back(str_cat(host, ":", options.port));
  }
}

bool LauncherClusterResolver::is_present() { return launcher() != nullptr; }

LauncherClusterResolver::LauncherClusterResolver(LauncherOptions options) {
  const LauncherNames* names = launcher();
  COHORT_CHECK_STATE(names != nullptr,
                     "[launcher] expected RANK and WORLD_SIZE in the environment, or those of "
                     "Horovod or MPI, got neither: start the program by torchrun, mpirun or "
                     "horovodrun");
  const int size = whole_number(names->size, *job_variable(names->size), 1);
  const int rank = whole_number(names->rank, *job_variable(names->rank), 0);
  COHORT_CHECK_ARG(rank < size, "[launcher] expected ", names->rank, " to be one of ", size,
                   " ranks, got ", rank);
  const auto local_text = job_variable(names->local_size);
  const int local = local_text ? whole_number(names->local_size, *local_text, 1) : size;
  if (local != size) {
    throw Unimplemented(str_cat("[launcher] expected all ", size, " ranks on one host, got ", local,
                                " here: ", names->rank,
                                " says nothing of the others' addresses. "
                                "Give each process a TF_CONFIG instead, or start them by Slurm"));
  }
  const int base = port_base_of(options);
  COHORT_CHECK_ARG(base > 0 && base + size <= 65'536, "[launcher] expected ports up to 65535, got ",
                   base, " to ", base + size - 1);
  for (int r = 0; r < size; ++r) jobs_["worker"].push_back(str_cat("localhost:", base + r));
  set_task("worker", rank);
}

std::shared_ptr<ClusterResolver> detect_cluster() {
  if (job_variable("TF_CONFIG") || job_variable("CLUSTER_SPEC")) {
    return std::make_shared<TFConfigClusterResolver>();
  }
  if (has_started_us(kTorchrun)) return std::make_shared<LauncherClusterResolver>();
  if (job_variable("SM_HOSTS")) return std::make_shared<SageMakerClusterResolver>();
  const auto tasks = job_variable("SLURM_STEP_NUM_TASKS");
  if (tasks && job_variable("SLURM_PROCID") && job_variable("SLURM_STEP_NODELIST") &&
      whole_number("SLURM_STEP_NUM_TASKS", *tasks, 1) > 1) {
    return std::make_shared<SlurmClusterResolver>();
  }
  if (launcher() != nullptr) return std::make_shared<LauncherClusterResolver>();
  return nullptr;
}

}  // namespace cohort
