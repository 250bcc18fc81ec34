// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameter_server_strategy.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/logging.h"
#include "cohort/base/mutex.h"
#include "cohort/cluster/environment.h"
#include "cohort/cluster/store/store_server.h"
#include "cohort/coordinator/internal/closure_effects.h"
#include "cohort/coordinator/internal/cluster_connection.h"
#include "cohort/coordinator/internal/coordinated.h"
#include "cohort/coordinator/internal/journal.h"
#include "cohort/coordinator/internal/parameter_server_place.h"
#include "cohort/coordinator/internal/worker_place.h"
#include "cohort/coordinator/parameters/group_client.h"
#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/coordinator/parameters/remote_variables.h"
#include "cohort/coordinator/parameters/replica_host.h"
#include "cohort/coordinator/status/status_server.h"
#include "cohort/strategy/local_strategy_extended.h"

namespace cohort {
namespace internal::coordinator {
namespace {

constexpr const char* kStrategy = "[ParameterServerStrategy] ";

class ParameterServerExtended final : public LocalStrategyExtended, public Coordinated {
 public:
  explicit ParameterServerExtended(ParameterServerPlace place)
      : LocalStrategyExtended({.name = "ParameterServerStrategy",
                               .devices = {runtime::host_device()},
                               .cluster_resolver = place.cluster_resolver}),
        connection_(std::move(place.connection)),
        status_(std::move(place.status)),
        journal_(std::move(place.journal)),
        is_resumed_(place.is_resumed),
        staleness_bound_(place.staleness_bound),
        servers_(place.servers->count()),
        variables_(std::make_shared<RemoteVariables>(
            RemoteVariablesOptions{.servers = std::move(place.servers),
                                   .partitioner = std::move(place.partitioner),
                                   .worker = place.worker,
                                   .workers = place.workers,
                                   .is_resumed = place.is_resumed,
                                   .sync_pushes = place.sync_pushes,
                                   .owner = description()})),
        store_(variables_) {}

  RemoteVariables& variables() { return *variables_; }
  bool leads_workers() const { return connection_ != nullptr; }
  std::shared_ptr<ClusterConnection> connection() override {
    COHORT_CHECK_STATE(connection_ != nullptr,
                       "[cluster_coordinator] expected the chief's strategy, got a worker's");
    return connection_;
  }
  std::shared_ptr<ParameterServers> servers() override { return variables_->options().servers; }
  std::shared_ptr<Journal> journal() override { return journal_; }
  bool is_resumed() override { return is_resumed_; }
  std::optional<int> staleness_bound() override { return staleness_bound_; }
  SyncPushes sync_pushes() override { return variables_->options().sync_pushes; }

 protected:
  std::vector<Device> do_parameter_devices() const override {
    std::vector<Device> out;
    for (int s = 0; s < servers_; ++s) {
      out.emplace_back(str_cat("/job:ps/replica:0/task:", s, "/device:CPU:0"));
    }
    return out;
  }
  // One after the other: what a pass computes with is one leaf for each variable.
  void do_run(ReplicaBody body) override {
    if (leads_workers()) warn_of_run();
    const base::MutexLock turn(runs_);
    variables_->begin_pass();
    LocalStrategyExtended::do_run(body);
  }
  const std::shared_ptr<variables::ParameterStore>& do_parameter_store() override { return store_; }
  std::shared_ptr<variables::VariableCreator> do_colocation(const Variable& v) override {
    return variables_->beside(v);
  }
  std::shared_ptr<void> do_cache_reads() override { return variables_->cache_reads(); }

 private:
  // Right for what is done once, such as finding out what a model gives.
  void warn_of_run() {
    if (has_warned_.exchange(true)) return;
    COHORT_LOG(kWarning,
               "[strategy.run] a function of a ParameterServerStrategy runs in the coordinator's "
               "own process, where no worker has a part in it; ClusterCoordinator::schedule() runs "
               "functions on workers, and run() is called in those");
  }

  const std::shared_ptr<ClusterConnection> connection_;  // ends last: servers hear what is dropped
  const std::shared_ptr<StatusServer> status_;
  const std::shared_ptr<Journal> journal_;
  const bool is_resumed_;
  const std::optional<int> staleness_bound_;
  const int servers_;
  const std::shared_ptr<RemoteVariables> variables_;
  const std::shared_ptr<variables::ParameterStore> store_;
  base::Mutex runs_;
  std::atomic<bool> has_warned_{false};
};

// Follows checkpoints by itself: for parameter servers it would be another coordinator.
bool is_evaluator(const ClusterResolver* resolver) {
  return resolver != nullptr && resolver->task_type() == "evaluator";
}

RemoteVariables& variables_of(const Strategy& strategy, const char* operation) {
  auto* const extended = dynamic_cast<ParameterServerExtended*>(&strategy.extended());
  COHORT_CHECK_ARG(extended != nullptr, operation, "expected a ParameterServerStrategy, got ",
                   strategy.extended().description());
  return extended->variables();
}

}  // namespace

Strategy make_parameter_server_strategy(ParameterServerPlace place) {
  return Strategy(std::make_shared<ParameterServerExtended>(std::move(place)));
}

void begin_parameter_pass(const Strategy& strategy) {
  variables_of(strategy, kStrategy).begin_pass();
}

bool leads_workers(const Strategy& strategy) {
  const auto* const extended = dynamic_cast<ParameterServerExtended*>(&strategy.extended());
  return extended != nullptr && extended->leads_workers();
}

static std::vector<rpc::RpcClientOptions> ps_options(const ClusterSpec& spec,
                                                     const rpc::RpcSecurity& security,
                                                     const rpc::RpcClaims& claims) {
  std::vector<rpc::RpcClientOptions> out;
  for (const int ps : spec.task_indices("ps")) {
    out.push_back({.address = spec.task_address("ps", ps),
                   .server_name = str_cat("ps ", ps),
                   .security = security,
                   .claims = claims});
  }
  return out;
}

static void check_replicas(const ClusterSpec& spec, int replicas) {
  COHORT_CHECK_ARG(replicas >= 1 && replicas <= spec.num_tasks("ps"), kStrategy,
                   "expected replicas from 1 to ", spec.num_tasks("ps"),
                   ", as many as there are parameter servers, got ", replicas);
  const char* const store = std::getenv(cluster::kStoreVariable);
  COHORT_CHECK_STATE(replicas == 1 || (store != nullptr && *store != '\0'), kStrategy,
                     "expected the address of the job's store in COHORT_STORE, for it decides "
                     "which of several replicas leads, got none; start the job with cohortrun");
}

// The coordinator has told the servers; one of them may be lost, or be new and not know it yet.
static GroupFacts facts_of(const std::vector<std::shared_ptr<rpc::RpcClient>>& servers) {
  const char* const store = std::getenv(cluster::kStoreVariable);
  if (store == nullptr || *store == '\0' || servers.size() < 2) return {.replicas = 1};
  constexpr std::chrono::seconds kOneTry{2};
  constexpr int kMostTries = 10;
  for (int attempt = 0; attempt < kMostTries; ++attempt) {
    for (const auto& each : servers) {
      try {
        const GroupFacts said = group_facts_of(*each, kOneTry);
        if (said.replicas > 0) return said;
      } catch (const Unavailable&) {  // another one knows
      } catch (const DeadlineExceeded&) {
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  throw Unavailable(str_cat(kStrategy, "expected a parameter server that says how many copies of ",
                            "variables there are, got none"),
                    "ps 0");
}

static ParameterServersOptions servers_options(int replicas, std::chrono::milliseconds lease) {
  if (replicas <= 1) return {};
  return {.timeout = group_timeout(lease), .are_groups = true};
}

Strategy make_worker_side(const WorkerPlace& place) {
  const auto options =
      ps_options(place.spec, place.security,
                 {.task = str_cat("worker ", place.worker), .generation = place.generation});
  std::vector<std::shared_ptr<rpc::RpcClient>> clients;
  for (const rpc::RpcClientOptions& each : options)
    clients.push_back(std::make_shared<rpc::RpcClient>(each));
  const GroupFacts facts = facts_of(clients);
  clients = group_clients(clients, options, facts.replicas);
  return make_parameter_server_strategy(
      {.servers = std::make_shared<ParameterServers>(std::move(clients),
                                                     servers_options(facts.replicas, facts.lease)),
       .worker = place.worker,
       .workers = place.spec.num_tasks("worker"),
       .sync_pushes = place.sync_pushes});
}

Variable bind_variable(const Strategy& strategy, const std::string& name, bool trainable) {
  return variables_of(strategy, "[variable] ").bind(name, trainable);
}

// From the beginning on: who waits for tasks wants to see which.
static std::shared_ptr<StatusServer> serve_status(const ClusterSpec& spec,
                                                  const ClusterResolver* resolver,
                                                  const ParameterServerOptions& options,
                                                  const std::shared_ptr<StatusBoard>& board) {
  StatusServer::Options out{.security = rpc::security_from_environment()};
  const bool is_chief = resolver != nullptr && resolver->task_type() == "chief";
  const int index = is_chief ? resolver->task_id().value_or(0) : 0;
  if (is_chief && spec.has_job("chief")) out.address = spec.task_address("chief", index);
  if (options.status_page) {
    out.page = StatusPage::Options{.host = options.status_page->host,
                                   .port = options.status_page->port,
                                   .token = rpc::Secret(options.status_page->token),
                                   .allow_insecure = out.security.allow_insecure};
  }
  return std::make_shared<StatusServer>(out, board);
}

static void check_steps(const ParameterServerOptions& options) {
  COHORT_CHECK_ARG(options.staleness_bound.value_or(0) >= 0, kStrategy,
                   "expected a staleness_bound of 0 steps or more, got ",
                   options.staleness_bound.value_or(0));
  const int needed = options.sync_replicas.value_or(SyncReplicasOptions()).replicas_to_aggregate;
  COHORT_CHECK_ARG(needed >= 1, kStrategy, "expected replicas_to_aggregate of 1 or more, got ",
                   needed);
}

static SyncPushes sync_pushes_of(const ParameterServerOptions& options) {
  if (!options.sync_replicas) return {};
  return {.needed = static_cast<uint64_t>(options.sync_replicas->replicas_to_aggregate),
          .drops_late = options.sync_replicas->drop_late};
}

static std::shared_ptr<Journal> open_journal(const ParameterServerOptions& options) {
  if (!options.journal) return nullptr;
  return std::make_shared<Journal>(
      Journal::Options{.folder = options.journal->folder, .sync = options.journal->sync});
}

// It is written down before a server hears of it: one that has heard of it is found again.
static CoordinatorIdentity begin_journal(Journal& journal,
                                         const std::vector<NewestCoordinator>& newest) {
  for (const NewestCoordinator& each : newest) {
    COHORT_CHECK_STATE(
        each.origin == 0 || each.origin != journal.origin() ||
            each.generation <= journal.generation(),
        "[journal] expected the journal with which the job's last chief, number ", each.generation,
        ", has begun, got one that ends with chief ", journal.generation(),
        ": another chief has begun meanwhile, or this is an old copy, or it was written with "
        ".sync = false and has lost its end in a power cut. End the other chief; or remove the "
        "file, and start the job from its last checkpoint");
  }
  const CoordinatorIdentity out{
      .session = random_session(),
      .generation = std::max(newest_generation(newest), journal.generation()) + 1,
      .origin = journal.can_resume() ? journal.origin() : 0};
  journal.begin(out.session, out.generation, out.origin != 0);
  return out;
}

static ClusterConnectionOptions connection_options(const ClusterSpec& spec, int replicas,
                                                   std::shared_ptr<StatusBoard> board,
                                                   Journal* journal) {
  ClusterConnectionOptions out{.spec = spec, .replicas = replicas, .board = std::move(board)};
  if (journal == nullptr) return out;
  out.begin = [journal](const std::vector<NewestCoordinator>& newest) {
    return begin_journal(*journal, newest);
  };
  out.begin_anew = [journal](const CoordinatorIdentity& identity) {
    journal->begin(identity.session, identity.generation, /*resumes=*/false);
  };
  return out;
}

// Whether the servers' state is the one that the journal tells of.
static bool begin_session(const ClusterConnection& connection, ParameterServers& servers,
                          int replicas, Journal* journal) {
  bool is_resumed = connection.is_resumed();
  if (replicas > 1) {
    const CoordinatorIdentity& identity = connection.identity();
    is_resumed = servers.begin(identity.session, identity.origin);
    if (identity.origin != 0 && !is_resumed) {
      base::failpoint("coordinator.groups_begun");
      journal->begin(identity.session, identity.generation, /*resumes=*/false);
      servers.begin(identity.session);
    }
  }
  if (journal != nullptr && is_resumed) settle_decided(*journal, servers);
  return is_resumed;
}

void check_parameter_cluster(const ClusterSpec& spec, const std::optional<std::string>& task_type) {
  static const std::vector<std::string> kJobs = {"chief", "worker", "ps", "evaluator"};
  const std::string jobs = join(kJobs, ", ");
  COHORT_CHECK_ARG(!spec.empty(), kStrategy,
                   "expected a cluster of workers and parameter servers, ",
                   "got none; set TF_CONFIG, or give a cluster_resolver");
  for (const std::string& job : spec.jobs()) {
    COHORT_CHECK_ARG(std::find(kJobs.begin(), kJobs.end(), job) != kJobs.end(), kStrategy,
                     "expected tasks of the types ", jobs, ", got \"", job, "\"");
  }
  for (const char* const needed : {"ps", "worker"}) {
    COHORT_CHECK_ARG(spec.has_job(needed) && spec.num_tasks(needed) > 0, kStrategy,
                     "expected at least one task \"", needed, "\" in the cluster, got ", spec);
  }
  const std::string type = task_type.value_or("chief");
  COHORT_CHECK_ARG(std::find(kJobs.begin(), kJobs.end(), type) != kJobs.end(), kStrategy,
                   "expected this task to be one of ", jobs, ", got \"", type, "\"");
  COHORT_CHECK_ARG(type != "ps" && type != "worker", kStrategy,
                   "expected the coordinator, got a task of type \"", type,
                   "\", which serves the coordinator: call run_task(resolver) first, and end the "
                   "program where it returns true");
}

}  // namespace internal::coordinator

namespace {

Strategy make_strategy(ParameterServerOptions options) {
  std::shared_ptr<ClusterResolver> resolver = std::move(options.cluster_resolver);
  if (resolver == nullptr) resolver = detect_cluster();
  const ClusterSpec spec = resolver == nullptr ? ClusterSpec() : resolver->cluster_spec();
  internal::coordinator::check_parameter_cluster(
      spec, resolver == nullptr ? std::nullopt : resolver->task_type());
  internal::coordinator::check_replicas(spec, options.replicas);
  internal::coordinator::check_steps(options);
  if (internal::coordinator::is_evaluator(resolver.get())) {
    return Strategy(std::make_shared<LocalStrategyExtended>(
        LocalStrategyOptions{.name = "ParameterServerStrategy",
                             .devices = {internal::runtime::host_device()},
                             .cluster_resolver = std::move(resolver)}));
  }
  const auto journal = internal::coordinator::open_journal(options);
  const auto board = std::make_shared<internal::coordinator::StatusBoard>();
  auto status = internal::coordinator::serve_status(spec, resolver.get(), options, board);
  auto connection = std::make_shared<internal::coordinator::ClusterConnection>(
      internal::coordinator::connection_options(spec, options.replicas, board, journal.get()));
  std::vector<std::shared_ptr<internal::rpc::RpcClient>> clients;
  for (int task = 0; task < connection->num_ps(); ++task) clients.push_back(connection->ps(task));
  clients = internal::coordinator::group_clients(
      clients,
      internal::coordinator::ps_options(spec, internal::rpc::security_from_environment(),
                                        {.task = "coordinator"}),
      options.replicas);
  const auto servers = std::make_shared<internal::coordinator::ParameterServers>(
      std::move(clients),
      internal::coordinator::servers_options(options.replicas, connection->group_lease()));
  // A program that ends lets go all variables before servers hear that the job is over. Were it
  // killed in between, the next one would find functions whose changes are gone.
  if (journal != nullptr) servers->hold_drops();
  const bool is_resumed =
      internal::coordinator::begin_session(*connection, *servers, options.replicas, journal.get());
  return internal::coordinator::make_parameter_server_strategy(
      {.servers = servers,
       .partitioner = std::move(options.variable_partitioner),
       .workers = spec.num_tasks("worker"),
       .cluster_resolver = std::move(resolver),
       .connection = std::move(connection),
       .status = std::move(status),
       .journal = journal,
       .is_resumed = is_resumed,
       .staleness_bound = options.staleness_bound,
       .sync_pushes = internal::coordinator::sync_pushes_of(options)});
}

}  // namespace

ParameterServerStrategy::ParameterServerStrategy(ParameterServerOptions options)
    : Strategy(make_strategy(std::move(options))) {}

}  // namespace cohort
