// SPDX-License-Identifier: Apache-2.0
//
// SageMaker, and the launchers that give each process its rank.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "cohort/base/check.h"
#include "cohort/cluster/environment.h"
#include "cohort/cluster/internal/rank_meeting.h"
#include "cohort/cluster/internal/variables.h"

namespace cohort {
namespace {

using internal::cluster::job_variable;
using internal::cluster::needed_variable;
using internal::cluster::whole_number;

// The variables of one launcher.
struct LauncherNames {
  const char* rank;
  const char* size;
  const char* local_size;
};
constexpr LauncherNames kTorchrun = {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
// What Kubeflow's Trainer writes for torchrun, of which this process may be started in its place.
constexpr LauncherNames kNodes = {"PET_NODE_RANK", "PET_NNODES", "PET_NPROC_PER_NODE"};
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

// One process a node; more are a launcher's to start.
bool is_node_of_several() {
  const auto nodes = job_variable(kNodes.size);
  return nodes && *nodes != "1" && *nodes != "1:1";
}

const LauncherNames* launcher_or_nodes() {
  const LauncherNames* const names = launcher();
  return names == nullptr && is_node_of_several() ? &kNodes : names;
}

void check_nodes() {
  const auto processes = job_variable("PET_NPROC_PER_NODE");
  COHORT_CHECK_STATE(
      job_variable(kNodes.rank) && (!processes || *processes == "1"),
      "[launcher] expected PET_NODE_RANK, and PET_NPROC_PER_NODE=1 or none, beside PET_NNODES=",
      *job_variable(kNodes.size),
      ", got PET_NODE_RANK=", job_variable(kNodes.rank).value_or("(not set)"),
      " and PET_NPROC_PER_NODE=", processes.value_or("(not set)"),
      ": nobody has started this node's processes, and this one would train alone. Start the "
      "program by cohortrun, which reads these variables (cohortrun -- PROGRAM)");
}

constexpr int kDefaultPortBase = 29'600;

// Of a variable of torchrun's, by its own name or as its flag.
std::optional<std::string> of_torchrun(const std::string& name) {
  auto text = job_variable(name.c_str());
  return text ? text : job_variable(("PET_" + name).c_str());
}

int port_base_of(const LauncherOptions& options) {
  if (options.port_base) return *options.port_base;
  const auto master = of_torchrun("MASTER_PORT");
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

bool LauncherClusterResolver::is_present() { return launcher_or_nodes() != nullptr; }

LauncherClusterResolver::LauncherClusterResolver(LauncherOptions options) {
  const LauncherNames* names = launcher_or_nodes();
  COHORT_CHECK_STATE(names != nullptr,
                     "[launcher] expected RANK and WORLD_SIZE in the environment, or those of "
                     "Horovod or MPI, got neither: start the program by torchrun, mpirun or "
                     "horovodrun");
  const bool is_node = names == &kNodes;
  if (is_node) check_nodes();
  const int size = whole_number(names->size, *job_variable(names->size), 1);
  const int rank = whole_number(names->rank, *job_variable(names->rank), 0);
  COHORT_CHECK_ARG(rank < size, "[launcher] expected ", names->rank, " to be one of ", size,
                   " ranks, got ", rank);
  const auto local_text =
      is_node ? std::optional<std::string>("1") : job_variable(names->local_size);
  const int local = local_text ? whole_number(names->local_size, *local_text, 1) : size;
  const int base = port_base_of(options);
  COHORT_CHECK_ARG(base > 0 && base + size <= 65'535, "[launcher] expected ports up to 65535, got ",
                   base, " to ", base + size);
  if (local == size) {
    for (int r = 0; r < size; ++r) jobs_["worker"].push_back(str_cat("localhost:", base + r));
  } else {
    const auto master = of_torchrun("MASTER_ADDR");
    COHORT_CHECK_STATE(master, "[launcher] expected ", is_node ? "PET_" : "", "MASTER_ADDR with ",
                       names->rank, ": ", size, " ranks of which ", local,
                       " are on this host. Set it to the host of rank 0 (mpirun -x "
                       "MASTER_ADDR=...), or give each process a TF_CONFIG");
    jobs_["worker"] = internal::cluster::addresses_of_ranks(
        {.rank = rank,
         .size = size,
         .meeting = str_cat(master->find(':') == std::string::npos ? *master : "[" + *master + "]",
                            ":", base),
         .port = base + 1 + rank,
         .timeout = options.start_timeout});
  }
  set_task("worker", rank);
}

namespace {

bool has_several_slurm_tasks() {
  const auto tasks = job_variable("SLURM_STEP_NUM_TASKS");
  return tasks && job_variable("SLURM_PROCID") && job_variable("SLURM_STEP_NODELIST") &&
         whole_number("SLURM_STEP_NUM_TASKS", *tasks, 1) > 1;
}

}  // namespace

internal::cluster::ClusterSource internal::cluster::cluster_source() {
  for (const char* name : {"TF_CONFIG", "CLUSTER_SPEC"}) {
    if (job_variable(name)) return {"TFConfigClusterResolver", str_cat(name, " is set")};
  }
  if (has_started_us(kTorchrun)) {
    return {"LauncherClusterResolver", "RANK and WORLD_SIZE are set, as torchrun does"};
  }
  if (!launcher() && is_node_of_several()) {
    return {"LauncherClusterResolver", "PET_NNODES is set, as Kubeflow's Trainer does"};
  }
  if (job_variable("SM_HOSTS")) return {"SageMakerClusterResolver", "SM_HOSTS is set"};
  if (has_several_slurm_tasks()) {
    return {"SlurmClusterResolver", "this is a step of several tasks of Slurm"};
  }
  if (const LauncherNames* names = launcher()) {
    return {"LauncherClusterResolver", str_cat(names->rank, " and ", names->size, " are set")};
  }
  return {};
}

std::shared_ptr<ClusterResolver> detect_cluster() {
  const std::string name = internal::cluster::cluster_source().resolver;
  if (name == "TFConfigClusterResolver") return std::make_shared<TFConfigClusterResolver>();
  if (name == "SageMakerClusterResolver") return std::make_shared<SageMakerClusterResolver>();
  if (name == "SlurmClusterResolver") return std::make_shared<SlurmClusterResolver>();
  if (name == "LauncherClusterResolver") return std::make_shared<LauncherClusterResolver>();
  return nullptr;
}

}  // namespace cohort
