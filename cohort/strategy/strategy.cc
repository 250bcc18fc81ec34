// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/strategy.h"

#include <ostream>

#include "cohort/base/check.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/internal/local_strategy.h"
#include "cohort/strategy/replica_context.h"

namespace cohort {

std::string ValueContext::to_string() const {
  return str_cat("ValueContext(replica id ", replica_id_in_sync_group,
                 ", total replicas in sync: ", num_replicas_in_sync, ")");
}

Tensor Strategy::reduce(ReduceOpArg op, const Variable& value, const Axes& axes) const {
  internal::check_cross_replica("[strategy.reduce] ");
  if (value.synchronization() == Synchronization::kOnWrite) return reduce(op, value.value(), axes);
  std::vector<Tensor> components;
  for (const Variable& component : value.components()) components.push_back(component.value());
  return internal::reduce_tensors(op, components, axes, use().custom_cross_device_ops());
}

Tensor Strategy::gather(const Tensor& value, int64_t) const {
  use();
  internal::check_cross_replica("[strategy.gather] ");
  return value;
}

int ReplicaContext::replica_id_in_sync_group() const {
  checked();
  return replica_;
}

Strategy ReplicaContext::strategy() const { return Strategy(checked().shared_from_this()); }

std::vector<Device> ReplicaContext::devices() const {
  StrategyExtended& strategy = checked();
  if (strategy_ == internal::LocalStrategy::default_instance()) return {Device("CPU:0")};
  return {strategy.worker_devices()[static_cast<std::size_t>(replica_)]};
}

std::string ReplicaContext::to_string() const {
  if (strategy_ == nullptr) return "ReplicaContext(none)";
  return str_cat("ReplicaContext(", strategy_->name(), ", replica id ", replica_, ")");
}

StrategyExtended& ReplicaContext::checked() const {
  COHORT_CHECK_STATE(strategy_ != nullptr,
                     "[replica_context] expected to be inside strategy.run, got cross-replica "
                     "context: there is no replica here; check with if (ctx)");
  return *strategy_;
}

StrategyExtended& ReplicaContext::here() const {
  StrategyExtended& strategy = checked();
  const int replica = current_replica();
  COHORT_CHECK_STATE(replica < 0 || replica == replica_,
                     "[replica_context] expected the context of replica ", replica,
                     ", which runs here, got replica ", replica_,
                     "'s; call get_replica_context() inside the function");
  return strategy;
}

std::ostream& operator<<(std::ostream& out, const Strategy& strategy) {
  return out << '<' << strategy.extended().description() << '>';
}
std::ostream& operator<<(std::ostream& out, const ValueContext& context) {
  return out << context.to_string();
}
std::ostream& operator<<(std::ostream& out, const ReplicaContext& context) {
  return out << context.to_string();
}

}  // namespace cohort
