// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/server.h"

#include <cstdlib>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/cluster/store/store_server.h"
#include "cohort/coordinator/internal/parameter_server_place.h"
#include "cohort/coordinator/internal/task_service.h"
#include "cohort/coordinator/internal/worker_service.h"
#include "cohort/coordinator/parameters/parameter_service.h"
#include "cohort/coordinator/parameters/replica_host.h"
#include "cohort/rpc/server.h"

namespace cohort {
namespace {

using internal::rpc::RpcHandler;

constexpr int kDefaultLeaseSeconds = 300;

std::chrono::milliseconds coordinator_lease() {
  const char* const text = std::getenv("COHORT_COORDINATOR_LEASE");
  if (text == nullptr || *text == '\0') return std::chrono::seconds(kDefaultLeaseSeconds);
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  COHORT_CHECK_ARG(*end == '\0' && seconds > 0 && seconds < 1e9,
                   "[server] expected COHORT_COORDINATOR_LEASE to be seconds, got \"", text, "\"");
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// cohortrun says so. The coordinator may have ended meanwhile.
bool was_restarted() {
  const char* const lease = std::getenv("COHORT_COORDINATOR_LEASE");
  const char* const count = std::getenv("COHORT_RESTART_COUNT");
  return lease != nullptr && *lease != '\0' && count != nullptr && std::atoi(count) > 0;
}

// The job and index that are meant where they are not said.
ServerOptions completed(const ClusterSpec& spec, ServerOptions options) {
  COHORT_CHECK_ARG(options.protocol == "grpc", "[server] expected the protocol grpc, got \"",
                   options.protocol, "\"");
  if (options.job_name.empty()) {
    COHORT_CHECK_ARG(spec.jobs().size() == 1, "[server] expected job_name, for the cluster has ",
                     spec.jobs().size(), " jobs: ", spec.to_string());
    options.job_name = spec.jobs().front();
  }
  if (options.task_index < 0) {
    COHORT_CHECK_ARG(
        spec.num_tasks(options.job_name) == 1,
        "[server] expected task_index, for the job has several tasks: ", spec.to_string());
    options.task_index = spec.task_indices(options.job_name).front();
  }
  COHORT_CHECK_ARG(options.job_name == "worker" || options.job_name == "ps",
                   "[server] expected a task of \"worker\" or \"ps\", got \"", options.job_name,
                   "\"; a chief or evaluator makes a strategy instead");
  return options;
}

}  // namespace

struct Server::Impl {
  Impl(const ClusterSpec& spec, const ServerOptions& options)
      : address(spec.task_address(options.job_name, options.task_index)),
        task({.name = str_cat(options.job_name, " ", options.task_index),
              .coordinator_lease = coordinator_lease(),
              .ends_alone = was_restarted(),
              .on_greeting =
                  [this](uint64_t generation, bool is_anew, std::function<void()> then) {
                    begin_session(generation, is_anew, std::move(then));
                  },
              .report = [this] { return report(); }}) {
    const internal::rpc::RpcSecurity security = internal::rpc::security_from_environment();
    std::map<std::string, RpcHandler> methods = task.methods();
    std::vector<std::string> lanes;
    if (options.job_name == "worker") {
      worker.emplace(internal::coordinator::WorkerService::Options{
          .place = {.spec = spec, .worker = options.task_index, .security = security},
          .check_session = [this](uint64_t session,
                                  uint64_t generation) { task.check_session(session, generation); },
          .make_strategy = internal::coordinator::make_worker_side,
          .begin_function = internal::coordinator::begin_parameter_pass,
          .variable =
              [](const Strategy& strategy, const std::string& name) {
                return internal::coordinator::bind_variable(strategy, name);
              }});
      methods.merge(worker->methods());
    } else {
      parameters = std::make_shared<internal::coordinator::ParameterService>();
      methods.merge(internal::coordinator::parameter_methods(parameters));
      lanes = internal::coordinator::parameter_lanes();
      for (std::string& each : internal::coordinator::ReplicaHosts::lanes()) {
        lanes.push_back(std::move(each));
      }
      const char* const store = std::getenv(internal::cluster::kStoreVariable);
      replicas.emplace(
          internal::coordinator::ReplicaHosts::Options{.spec = spec,
                                                       .task = options.task_index,
                                                       .security = security,
                                                       .store = store == nullptr ? "" : store});
      methods.merge(replicas->methods());
    }
    server = std::make_unique<internal::rpc::RpcServer>(
        internal::rpc::RpcServerOptions{
            .address = address, .security = security, .lanes = std::move(lanes)},
        std::move(methods));
  }
  // Another coordinator has come. A worker sees that by the next functions.
  void begin_session(uint64_t generation, bool is_anew, std::function<void()> then) {
    if (!parameters) return then();
    parameters->follow(generation, is_anew, std::move(then));
  }

  internal::coordinator::TaskReport report() const {
    const internal::coordinator::RowCounts& rows = internal::coordinator::row_counts();
    internal::coordinator::TaskReport out{.rows_read = rows.read, .rows_changed = rows.changed};
    if (replicas) out.groups = replicas->reports();
    return out;
  }

  const std::string address;
  internal::coordinator::TaskService task;
  std::optional<internal::coordinator::WorkerService> worker;
  std::shared_ptr<internal::coordinator::ParameterService> parameters;
  std::optional<internal::coordinator::ReplicaHosts> replicas;
  std::unique_ptr<internal::rpc::RpcServer> server;  // last: its calls end first
};

Server::Server(ClusterSpec spec, ServerOptions options)
    : impl_(std::make_unique<Impl>(spec, completed(spec, std::move(options)))) {}

Server::~Server() = default;

std::string Server::target() const { return "grpc://" + impl_->server->address(); }

void Server::join() { impl_->task.wait_for_end(); }

bool run_task(const ClusterResolver& resolver) {
  const ClusterSpec spec = resolver.cluster_spec();
  const std::string type = resolver.task_type().value_or("");
  if (spec.empty() || (type != "worker" && type != "ps")) return false;
  Server(spec, {.job_name = type, .task_index = resolver.task_id().value_or(0)}).join();
  return true;
}

}  // namespace cohort
