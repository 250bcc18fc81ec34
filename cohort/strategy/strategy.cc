// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/strategy.h"

#include "cohort/base/check.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/internal/local_strategy.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"

namespace cohort {

using internal::current_mode;
using internal::Mode;
using internal::ModeGuard;
using internal::ModeKind;

namespace {

/// The mode that set_strategy installed for the whole thread.
std::optional<ModeGuard>& global_mode() {
  // What the guard restores must outlive it: thread-locals die in reverse order of their making.
  current_mode();
  internal::current_variable_creator();
  thread_local std::optional<ModeGuard> mode;
  return mode;
}
thread_local int t_scopes = 0;

void check_not_mixed(const char* operation, const StrategyExtended& wanted) {
  const Mode& mode = current_mode();
  COHORT_CHECK_STATE(mode.strategy == nullptr || mode.strategy.get() == &wanted, operation,
                     "expected ", mode.strategy ? mode.strategy->name() : "",
                     ", which is current, got another strategy object (", wanted.name(),
                     "): strategies cannot be mixed");
}

}  // namespace

Scope::Scope(const std::shared_ptr<StrategyExtended>& strategy) {
  static constexpr const char* kOperation = "[strategy.scope] ";
  const Mode& mode = current_mode();
  const bool is_default = strategy == internal::LocalStrategy::default_instance();
  COHORT_CHECK_STATE(!is_default || mode.strategy == nullptr, kOperation,
                     "expected no other strategy's scope around the default strategy's, got ",
                     mode.strategy ? mode.strategy->name() : "");
  check_not_mixed(kOperation, *strategy);
  COHORT_CHECK_STATE(mode.kind != ModeKind::kReplica, kOperation,
                     "expected cross-replica context, got a replica: inside strategy.run use "
                     "merge_call");
  ++t_scopes;
  if (!is_default && mode.strategy == nullptr) mode_.emplace(ModeKind::kCrossReplica, strategy);
}

Scope::~Scope() { --t_scopes; }

std::vector<Device> StrategyExtended::worker_devices() const {
  COHORT_CHECK_STATE(!do_is_default(),
                     "[strategy.worker_devices] expected a strategy with devices, "
                     "got the default one");
  return do_devices();
}

std::vector<Device> StrategyExtended::parameter_devices() const {
  COHORT_CHECK_STATE(!do_is_default(),
                     "[strategy.parameter_devices] expected a strategy with "
                     "devices, got the default one");
  return do_devices();
}

bool StrategyExtended::variable_created_in_scope(const Variable& v) const {
  return v.impl().creator() == const_cast<StrategyExtended*>(this)->do_variable_creator().get();
}

void StrategyExtended::call_for_each_replica(internal::FunctionRef<void(int)> body) {
  static constexpr const char* kOperation = "[strategy.run] ";
  check_not_mixed(kOperation, *this);
  COHORT_CHECK_STATE(current_mode().kind != ModeKind::kReplica, kOperation,
                     "expected cross-replica context, got a replica: run cannot be nested");
  do_run(body);
}

std::shared_ptr<void> StrategyExtended::merge(
    const void* tag, const void* argument,
    internal::FunctionRef<std::shared_ptr<void>(std::span<const void* const>)> body) {
  const auto cross_replica = [&](std::span<const void* const> all) {
    const ModeGuard mode(ModeKind::kCrossReplica, do_is_default() ? nullptr : shared_from_this());
    return body(all);
  };
  internal::ReplicaGroup* group = internal::current_replica_group();
  COHORT_CHECK_STATE(
      group == nullptr || current_mode().strategy.get() == (do_is_default() ? nullptr : this),
      "[replica_context.merge_call] expected the replica context of the strategy "
      "that runs here, got one of ",
      do_name());
  if (group != nullptr) return group->merge(tag, argument, cross_replica);
  COHORT_CHECK_STATE(do_is_default(),
                     "[replica_context.merge_call] expected to be inside "
                     "strategy.run, got cross-replica context");
  return cross_replica(std::span<const void* const>(&argument, 1));
}

Strategy get_strategy() {
  const Mode& mode = current_mode();
  return Strategy(mode.strategy ? mode.strategy : internal::LocalStrategy::default_instance());
}

bool has_strategy() { return current_mode().strategy != nullptr; }

bool in_cross_replica_context() { return current_mode().kind == ModeKind::kCrossReplica; }

ReplicaContext get_replica_context() {
  const Mode& mode = current_mode();
  switch (mode.kind) {
    case ModeKind::kCrossReplica:
      return ReplicaContext();
    case ModeKind::kReplica:
      return ReplicaContext(mode.strategy);
    case ModeKind::kDefault:
      break;
  }
  return ReplicaContext(internal::LocalStrategy::default_instance());
}

void set_strategy(const std::optional<Strategy>& strategy) {
  COHORT_CHECK_STATE(t_scopes == 0 && internal::enclosing_replica_group() == nullptr,
                     "[set_strategy] expected to be outside of every scope, got a call inside one");
  global_mode().reset();
  if (!strategy || *strategy == Strategy(internal::LocalStrategy::default_instance())) return;
  global_mode().emplace(ModeKind::kCrossReplica, strategy->extended().shared_from_this());
}

Tensor Strategy::reduce(ReduceOp op, const Tensor& value, const Axes& axes) const {
  internal::check_cross_replica("[strategy.reduce] ");
  const int replicas = num_replicas_in_sync();
  const bool same_for_any_count =
      op == ReduceOp::kMean || op == ReduceOp::kMin || op == ReduceOp::kMax;
  if (replicas == 1 || same_for_any_count) {
    return axes.empty() ? value : internal::reduce_tensors(op, {value}, axes);
  }
  if (value.dim() == 0 && value.item<double>() == 0) return value;
  throw InvalidArgument(
      str_cat("[strategy.reduce] expected a PerReplica value, got one tensor, the "
              "same on each of ",
              replicas, " replicas: it cannot be reduced with ", reduce_op_name(op)));
}

Tensor Strategy::reduce(ReduceOp op, const Variable& value, const Axes& axes) const {
  internal::check_cross_replica("[strategy.reduce] ");
  if (value.synchronization() == Synchronization::kOnWrite) return reduce(op, value.value(), axes);
  std::vector<Tensor> components;
  for (const Variable& component : value.components()) components.push_back(component.value());
  return internal::reduce_tensors(op, components, axes);
}

Tensor Strategy::gather(const Tensor& value, int64_t) const {
  internal::check_cross_replica("[strategy.gather] ");
  return value;
}

DistributedDataset Strategy::distribute_dataset(const Dataset& global_batches,
                                                const InputOptions& options) const {
  if (options.replication_mode != InputReplicationMode::kPerWorker) {
    throw Unimplemented(
        "[strategy.distribute_dataset] expected replication mode kPerWorker, got "
        "kPerReplica: a dataset that one pipeline splits cannot be replicated");
  }
  return DistributedDataset(global_batches, num_replicas_in_sync());
}

int ReplicaContext::replica_id_in_sync_group() const {
  checked();
  return std::max(0, current_replica());
}

Strategy ReplicaContext::strategy() const { return Strategy(checked().shared_from_this()); }

std::vector<Device> ReplicaContext::devices() const {
  StrategyExtended& strategy = checked();
  if (strategy_ == internal::LocalStrategy::default_instance()) return {Device("CPU:0")};
  return {strategy.worker_devices()[static_cast<std::size_t>(replica_id_in_sync_group())]};
}

StrategyExtended& ReplicaContext::checked() const {
  COHORT_CHECK_STATE(strategy_ != nullptr,
                     "[replica_context] expected to be inside strategy.run, got cross-replica "
                     "context: there is no replica here");
  return *strategy_;
}

MirroredStrategy::MirroredStrategy(MirroredOptions options) {
  if (options.devices.empty()) options.devices = list_devices(DeviceKind::kCpu);
  extended_ = std::make_shared<internal::LocalStrategy>(
      internal::LocalStrategyOptions{.name = "MirroredStrategy",
                                     .devices = std::move(options.devices),
                                     .cross_device_ops = std::move(options.cross_device_ops)});
}

OneDeviceStrategy::OneDeviceStrategy(const Device& device) {
  extended_ = std::make_shared<internal::LocalStrategy>(
      internal::LocalStrategyOptions{.name = "OneDeviceStrategy", .devices = {device}});
}

}  // namespace cohort
