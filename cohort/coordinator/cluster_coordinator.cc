// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/cluster_coordinator.h"

#include "cohort/base/check.h"
#include "cohort/coordinator/internal/cluster_connection.h"
#include "cohort/coordinator/internal/coordinated.h"
#include "cohort/coordinator/internal/coordinator_core.h"
#include "cohort/coordinator/internal/sent_dataset.h"

namespace cohort {
namespace {

// With room for what stands around them in a message.
constexpr std::size_t kMostSentBytes = std::size_t{54} << 20;

internal::coordinator::Coordinated& coordinated_of(const Strategy& strategy) {
  auto* const coordinated = dynamic_cast<internal::coordinator::Coordinated*>(&strategy.extended());
  COHORT_CHECK_ARG(coordinated != nullptr,
                   "[cluster_coordinator] expected a ParameterServerStrategy, got ",
                   strategy.extended().description());
  return *coordinated;
}

}  // namespace

namespace internal::coordinator {

std::shared_ptr<CoordinatorCore> Coordinated::coordinator() {
  const base::MutexLock lock(mutex_);
  std::shared_ptr<CoordinatorCore> out = coordinator_.lock();
  if (!out) {
    out = std::make_shared<CoordinatorCore>(
        connection(), servers(), journal(),
        CoordinatorSettings{.staleness_bound = staleness_bound(), .sync_pushes = sync_pushes()});
    coordinator_ = out;
  }
  return out;
}

}  // namespace internal::coordinator

ClusterCoordinator::ClusterCoordinator(const Strategy& strategy)
    : strategy_(strategy), core_(coordinated_of(strategy).coordinator()) {}

std::shared_ptr<internal::coordinator::RemoteResult> ClusterCoordinator::put(
    internal::coordinator::AnyFunction function, Arguments arguments,
    const ScheduleOptions& options, bool counts_once) {
  auto closure = std::make_shared<internal::coordinator::Closure>();
  closure->function = internal::coordinator::registered_function(function, "[schedule] ").name;
  closure->result = std::make_shared<internal::coordinator::RemoteResult>();
  closure->arguments = std::move(arguments.values);
  closure->kept = std::move(arguments.kept);
  closure->counts_once = counts_once;
  closure->is_step = options.is_step;
  if (!options.id.empty()) {
    closure->key =
        internal::coordinator::journal_key(options.id, closure->function, closure->arguments);
  }
  return internal::base::held(core_, "ClusterCoordinator", "schedule")->put(std::move(closure));
}

void ClusterCoordinator::join() { internal::base::held(core_, "ClusterCoordinator")->join(); }

bool ClusterCoordinator::done() {
  return internal::base::held(core_, "ClusterCoordinator")->done();
}

bool ClusterCoordinator::resumed() const { return coordinated_of(strategy_).is_resumed(); }

void ClusterCoordinator::forget_finished() {
  internal::base::held(core_, "ClusterCoordinator")->forget_finished();
}

PerWorkerDataset ClusterCoordinator::create_per_worker_dataset(const data::Dataset& pipeline) {
  const auto sent = internal::coordinator::read_for_sending(pipeline, kMostSentBytes);
  return create_per_worker_dataset(&internal::coordinator::make_sent_dataset, sent.spec,
                                   sent.elements);
}

data::ElementSpec ClusterCoordinator::element_spec(const PerWorkerDataset& dataset) {
  return internal::coordinator::unpacked_spec(
      schedule({.is_step = false}, &internal::coordinator::packed_spec_of, dataset).get());
}

PerWorkerIterator ClusterCoordinator::make_iterator(const PerWorkerDataset& dataset) {
  return PerWorkerIterator(
      internal::base::held(core_, "ClusterCoordinator")
          ->add_resource({.kind = internal::coordinator::ResourceRecipe::Kind::kIterator,
                          .dataset = dataset.handle()->id()},
                         {dataset.handle()}));
}

std::shared_ptr<internal::coordinator::ResourceHandle> ClusterCoordinator::add_resource(
    internal::coordinator::AnyFunction fn, Arguments arguments) {
  const std::string& name =
      internal::coordinator::registered_function(fn, "[create_per_worker_resource] ").name;
  return internal::base::held(core_, "ClusterCoordinator", "create_per_worker_resource")
      ->add_resource({.function = name, .arguments = std::move(arguments.values)},
                     std::move(arguments.kept));
}

}  // namespace cohort
