// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/multi_worker_mirrored.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/base/log_tag.h"
#include "cohort/base/logging.h"
#include "cohort/base/process_mark.h"
#include "cohort/cluster/roles.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/liveness.h"
#include "cohort/collectives/transports/mpi/mpi_lanes.h"
#include "cohort/collectives/transports/tcp/tcp_transport.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/runtime/process_seed.h"
#include "cohort/runtime/random.h"
#include "cohort/runtime/topology.h"
#include "cohort/strategy/internal/build_name.h"
#include "cohort/strategy/internal/local_strategy.h"

namespace cohort {
namespace {

using internal::cluster::TaskName;

constexpr const char* kMultiWorker = "[MultiWorkerMirroredStrategy] ";
// A clock cannot name the end of much longer times.
constexpr std::chrono::hours kCentury{24 * 365 * 100};

void check_communication(const CommunicationOptions& options) {
  COHORT_CHECK_ARG(options.bytes_per_pack >= 0, kMultiWorker, "expected bytes_per_pack >= 0, got ",
                   options.bytes_per_pack);
  COHORT_CHECK_ARG(!options.timeout || options.timeout->count() > 0, kMultiWorker,
                   "expected a timeout of more than 0, got ", options.timeout->count(), " ms");
  const char* library = nullptr;
  switch (options.implementation) {
    case CommunicationImplementation::kAuto:
    case CommunicationImplementation::kRing:
      return;
    case CommunicationImplementation::kNccl:
      library = "NCCL";
      break;
    case CommunicationImplementation::kGloo:
      library = "Gloo";
      break;
    case CommunicationImplementation::kMpi:
      if (internal::collectives::has_mpi()) return;
      throw Unimplemented(str_cat(
          kMultiWorker,
          "expected a build of Cohort with MPI for kMpi, got one without: none was found when it "
          "was configured (Debian: libopenmpi-dev), or COHORT_USE_MPI was off"));
  }
  throw Unimplemented(str_cat(kMultiWorker, "expected kAuto (shared memory or TCP), got ", library,
                              ": there is no transport over it in this version"));
}

bool is_insecure_allowed(const MultiWorkerMirroredOptions& options) {
  const char* text = std::getenv("COHORT_ALLOW_INSECURE");
  return options.allow_insecure || (text != nullptr && std::string_view(text) == "1");
}

// Ranks of another MPI than Cohort's see no mpirun, and each would train alone.
void check_alone_over_mpi() {
  COHORT_CHECK_STATE(internal::collectives::has_mpi_launcher(), kMultiWorker,
                     "expected mpirun to have started this process, as kMpi asks for, got one that "
                     "it has not, and no other worker: it would train alone. Start it by mpirun "
                     "(-np 1 for one worker), or use kAuto");
  const internal::collectives::MpiPlace place = internal::collectives::mpi_place();
  COHORT_CHECK_STATE(place.size == 1, kMultiWorker,
                     "expected mpirun to have started the one worker of this cluster and nobody "
                     "else, got process ",
                     place.rank, " of ", place.size,
                     " that were started together: each would train alone");
}

// This process's place in the cluster. Errors: InvalidArgument.
TaskName task_of(const ClusterResolver& resolver, const ClusterSpec& spec) {
  const auto type = resolver.task_type();
  const auto id = resolver.task_id();
  const std::string variable = internal::cluster::variable_of(resolver);
  COHORT_CHECK_ARG(type && id, kMultiWorker,
                   "When a cluster is given, you must also specify `task_type` and `task_id`: ",
                   "expected both, got ", type ? *type : "no type", " and ",
                   id ? std::to_string(*id) : "no id", " in ", spec,
                   variable.empty() ? "" : str_cat(" (at ", variable, ".task)"));
  TaskName task{.type = *type, .id = *id};
  internal::cluster::check_cluster(spec, task, variable);
  COHORT_CHECK_ARG(task.type != "ps", kMultiWorker,
                   "expected a chief, worker or evaluator, got task 'ps'; parameter servers are "
                   "for ParameterServerStrategy",
                   variable.empty() ? "" : str_cat(" (at ", variable, ".task.type)"));
  return task;
}

std::chrono::milliseconds milliseconds_of(const std::optional<std::chrono::milliseconds>& option,
                                          const char* variable,
                                          std::chrono::milliseconds otherwise) {
  if (option) return std::min<std::chrono::milliseconds>(*option, kCentury);
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return otherwise;
  int64_t number = -1;
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, number);
  COHORT_CHECK_ARG(error == std::errc() && rest == end && number >= 0, kMultiWorker, "expected ",
                   variable, " to be a number of milliseconds, got \"", text, "\"");
  return std::min<std::chrono::milliseconds>(std::chrono::milliseconds(number), kCentury);
}

double straggler_ratio_of(const MultiWorkerMirroredOptions& options, double otherwise) {
  double ratio = options.straggler_ratio.value_or(otherwise);
  const char* text = std::getenv("COHORT_STRAGGLER_RATIO");
  if (!options.straggler_ratio && text != nullptr && *text != '\0') {
    const char* end = text + std::strlen(text);
    const auto [rest, error] = std::from_chars(text, end, ratio);
    COHORT_CHECK_ARG(error == std::errc() && rest == end, kMultiWorker,
                     "expected COHORT_STRAGGLER_RATIO to be a number, got \"", text, "\"");
  }
  COHORT_CHECK_ARG(ratio == 0 || ratio > 1, kMultiWorker,
                   "expected a straggler_ratio of more than 1, or 0, got ", ratio);
  return ratio;
}

// The workers' leases, by which they learn who hangs or is cut off.
internal::collectives::LivenessOptions leases_of(const MultiWorkerMirroredOptions& options,
                                                 const ClusterSpec& spec) {
  internal::collectives::LivenessOptions how{.addresses = internal::cluster::worker_addresses(spec),
                                             .allow_insecure = is_insecure_allowed(options),
                                             .start_timeout = options.start_timeout};
  how.heartbeat = milliseconds_of(options.heartbeat, "COHORT_HEARTBEAT_MS", how.heartbeat);
  how.lease = milliseconds_of(options.lease, "COHORT_LEASE_MS", how.lease);
  how.straggler_ratio = straggler_ratio_of(options, how.straggler_ratio);
  // Before the others are waited for.
  if (how.lease.count() > 0) internal::collectives::check_leases(how);
  // Of those that count, the chief is first.
  const bool has_chief = spec.has_job("chief");
  for (std::size_t rank = 0; rank < how.addresses.size(); ++rank) {
    const bool is_chief = has_chief && rank == 0;
    how.tasks.push_back(is_chief ? "chief 0" : str_cat("worker ", rank - (has_chief ? 1 : 0)));
  }
  return how;
}

std::shared_ptr<internal::collectives::Communicator> connect(
    const MultiWorkerMirroredOptions& options, const ClusterSpec& spec, const TaskName& task) {
  const internal::collectives::LivenessOptions leases = leases_of(options, spec);
  const std::vector<std::string> addresses = internal::cluster::worker_addresses(spec);
  const int rank = internal::cluster::id_in_cluster(spec, task);
  const bool allow_insecure = is_insecure_allowed(options);
  const internal::rpc::RpcSecurity security = internal::rpc::security_from_environment();
  const bool over_mpi =
      options.communication_options.implementation == CommunicationImplementation::kMpi;
  COHORT_CHECK_ARG(!over_mpi || !security.has_tls(), kMultiWorker,
                   "expected no certificates (COHORT_TLS_CERTIFICATE) with kMpi, whose messages "
                   "nobody encrypts, got some; use kAuto");
  internal::base::set_log_tag(str_cat(task.type, "-", task.id));
  const char* how = "";
  if (allow_insecure) how = "; messages are not encrypted";
  if (security.has_tls()) how = ", over TLS";
  COHORT_LOG(kInfo, "MultiWorkerMirroredStrategy: ", task.type, " ", task.id, " is worker ", rank,
             " of ", addresses.size(), ", at ", addresses[static_cast<std::size_t>(rank)], how,
             "; waiting for the others");
  internal::collectives::CommunicatorOptions communicator;
  if (options.communication_options.timeout) {
    communicator.timeout = *options.communication_options.timeout;
  }
  auto connected = std::make_unique<internal::collectives::Communicator>(
      internal::collectives::connect_over_tcp(
          {.rank = rank,
           .addresses = addresses,
           .tasks = leases.tasks,
           .agreement = str_cat(
               internal::strategy::build_name(), ", ", options.devices.size(), " devices each, ",
               options.communication_options.bfloat16_gradients ? "gradients as bfloat16, " : "",
               over_mpi ? "messages over MPI, " : "", spec),
           .timeout = options.start_timeout,
           .tls = security.has_tls() ? internal::rpc::TlsContext::of_certificates(security)
                                     : internal::rpc::TlsContext(),
           .allow_insecure = allow_insecure,
           .mpi = over_mpi}),
      communicator);
  if (leases.lease.count() == 0) return internal::base::kept_to_this_process(std::move(connected));
  return internal::collectives::watch_over(std::move(connected), leases);
}

// One of each worker, in their order.
std::vector<uint64_t> numbers_of_all(internal::collectives::Communicator& communicator,
                                     uint64_t here) {
  std::vector<uint64_t> numbers(static_cast<std::size_t>(communicator.size()), here);
  std::vector<internal::collectives::Bytes> pieces;
  for (uint64_t& each : numbers) pieces.push_back(std::as_writable_bytes(std::span(&each, 1)));
  communicator.all_gather(pieces);
  return numbers;
}

// Those that share this one's cores: with as many threads as replicas of one process would have,
// operations add in the same order.
int workers_on_these_cores(internal::collectives::Communicator& communicator) {
  const uint64_t here = std::hash<std::string>()(internal::runtime::cores_identity());
  const std::vector<uint64_t> all = numbers_of_all(communicator, here);
  return static_cast<int>(std::count(all.begin(), all.end(), here));
}

// Each process has a seed of its own until set_seed: their shuffles would differ, and rows be seen
// by two workers or by none. What one has set is everybody's; where none has, worker 0's is.
void agree_on_seed(internal::collectives::Communicator& communicator) {
  const std::vector<uint64_t> seeds =
      numbers_of_all(communicator, internal::runtime::current_seed());
  const std::vector<uint64_t> are_set =
      numbers_of_all(communicator, static_cast<uint64_t>(internal::runtime::has_process_seed()));
  std::optional<std::size_t> first;
  for (std::size_t w = 0; w < seeds.size(); ++w) {
    if (are_set[w] == 0) continue;
    if (!first) first = w;
    COHORT_CHECK_STATE(seeds[w] == seeds[*first], kMultiWorker,
                       "expected the same seed on every worker, got set_seed(", seeds[*first],
                       ") on rank ", *first, " and set_seed(", seeds[w], ") on rank ", w, " of ",
                       seeds.size(),
                       ": their shuffles would differ. Call set_seed with one number on all");
  }
  if (std::adjacent_find(seeds.begin(), seeds.end(), std::not_equal_to<>()) == seeds.end()) return;
  set_seed(seeds[first.value_or(0)]);
}

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(MultiWorkerMirroredOptions options) {
  check_communication(options.communication_options);
  options.start_timeout = std::min<std::chrono::milliseconds>(options.start_timeout, kCentury);
  if (options.devices.empty()) options.devices = list_devices(DeviceKind::kGpu);
  if (options.devices.empty()) options.devices = {internal::runtime::host_device()};
  if (!options.cluster_resolver) options.cluster_resolver = detect_cluster();
  std::shared_ptr<internal::collectives::Communicator> communicator;
  int workers_here = 1;
  bool is_evaluator = false;
  if (options.cluster_resolver) {
    const ClusterSpec spec = options.cluster_resolver->cluster_spec();
    if (!spec.empty()) {
      const TaskName task = task_of(*options.cluster_resolver, spec);
      // An evaluator is a cluster of its own.
      is_evaluator = task.type == "evaluator";
      // Not by their number: one whose others are not named would train alone.
      if (!is_evaluator && internal::cluster::worker_addresses(spec).size() > 1) {
        communicator = connect(options, spec, task);
        agree_on_seed(*communicator);
        workers_here = workers_on_these_cores(*communicator);
      }
    }
  }
  const bool over_mpi =
      options.communication_options.implementation == CommunicationImplementation::kMpi;
  if (over_mpi && !communicator && !is_evaluator) check_alone_over_mpi();
  extended_ =
      std::make_shared<internal::strategy::LocalStrategy>(internal::strategy::LocalStrategyOptions{
          .name = "MultiWorkerMirroredStrategy",
          .devices = std::move(options.devices),
          .check_copies = options.check_copies,
          .intra_op_threads = options.intra_op_threads,
          .workers_here = workers_here,
          .communicator = std::move(communicator),
          .bytes_per_pack = options.communication_options.bytes_per_pack,
          .bfloat16_gradients = options.communication_options.bfloat16_gradients,
          .own_random_numbers = false,
          .cluster_resolver = std::move(options.cluster_resolver)});
}

}  // namespace cohort
