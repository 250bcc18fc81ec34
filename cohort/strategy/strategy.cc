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

namespace {

std::vector<Tensor> values_of(const std::vector<Variable>& components) {
  std::vector<Tensor> values;
  for (const Variable& component : components) values.push_back(component.value());
  return values;
}

}  // namespace

Tensor Strategy::reduce(ReduceOpArg op, const Variable& value, const Axes& axes) const {
  internal::check_cross_replica("[strategy.reduce] ");
  if (value.synchronization() == Synchronization::kOnWrite) {
    return reduce(op, value.value().clone(), axes);
  }
  internal::check_one_worker("[strategy.reduce] ", use().layout());
  return internal::reduce_tensors(op, values_of(value.components()), axes,
                                  use().custom_cross_device_ops());
}

Tensor Strategy::gather(const Tensor& value, int64_t) const {
  use();
  internal::check_cross_replica("[strategy.gather] ");
  return value;
}

Tensor Strategy::gather(const Variable& value, int64_t axis) const {
  StrategyExtended& extended = use();
  internal::check_cross_replica("[strategy.gather] ");
  internal::check_one_worker("[strategy.gather] ", extended.layout());
  return internal::gather_tensors(values_of(value.components()), axis,
                                  extended.custom_cross_device_ops());
}

int ReplicaContext::replica_id_in_sync_group() const {
  return checked().layout().global_id(replica_);
}

Strategy ReplicaContext::strategy() const { return Strategy(checked().shared_from_this()); }

std::vector<Device> ReplicaContext::devices() const {
  return {(*checked().device_list())[static_cast<std::size_t>(replica_)]};
}

std::string ReplicaContext::to_string() const {
  if (strategy_ == nullptr) return "ReplicaContext(none)";
  return str_cat("ReplicaContext(", strategy_->name(), ", replica id ", replica_id_in_sync_group(),
                 ")");
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
  COHORT_CHECK_STATE(
      replica < 0 || replica == replica_, "[replica_context] expected the context of replica ",
      internal::current_global_replica(), ", which runs here, got replica ",
      replica_id_in_sync_group(), "'s; call get_replica_context() inside the function");
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
