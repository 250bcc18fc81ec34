// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/strategy.h"

#include <ostream>

#include "cohort/base/check.h"
#include "cohort/collectives/communicator.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/internal/local_strategy.h"
#include "cohort/strategy/replica_context.h"

namespace cohort {

std::string ValueContext::to_string() const {
  return str_cat("ValueContext(replica id ", replica_id_in_sync_group,
                 ", total replicas in sync: ", num_replicas_in_sync, ")");
}

namespace {

// Not value(): where there is one replica that is the value of all workers.
std::vector<Tensor> components_of(const Variable& v) {
  std::vector<Tensor> values;
  for (int r = 0; r < v.impl().leaf_count(); ++r) {
    values.push_back(v.impl().leaf_of(r).tensor);
  }
  return values;
}

}  // namespace

void Strategy::barrier() const {
  static constexpr const char* kOperation = "[strategy.barrier] ";
  internal::strategy::check_cross_replica(kOperation);
  internal::collectives::Communicator* const others = use().reach(kOperation).others;
  if (others != nullptr) others->take_turn(kOperation, [&] { others->barrier(); });
}

Tensor Strategy::reduce(ReduceOpArg op, const Variable& value, const Axes& axes) const {
  internal::strategy::check_cross_replica("[strategy.reduce] ");
  if (value.synchronization() == Synchronization::kOnWrite) {
    const Device& host = internal::runtime::host_device();
    return reduce_equal(op, internal::runtime::copy_on(host, value.value()), axes);
  }
  const internal::strategy::Reach reach = use().reach("[strategy.reduce] ");
  return internal::strategy::together(reach.others, "strategy.reduce", [&] {
    return internal::strategy::reduce_tensors(op, components_of(value), axes, reach);
  });
}

Tensor Strategy::gather(const Tensor& value, int64_t axis) const {
  const internal::strategy::Reach reach = use().reach("[strategy.gather] ");
  internal::strategy::check_cross_replica("[strategy.gather] ");
  if (reach.others == nullptr) return value;
  return internal::strategy::together(reach.others, "strategy.gather", [&] {
    return internal::strategy::gather_tensors({value}, axis, reach);
  });
}

Tensor Strategy::gather(const Variable& value, int64_t axis) const {
  const internal::strategy::Reach reach = use().reach("[strategy.gather] ");
  internal::strategy::check_cross_replica("[strategy.gather] ");
  return internal::strategy::together(reach.others, "strategy.gather", [&] {
    return internal::strategy::gather_tensors(components_of(value), axis, reach);
  });
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
      internal::runtime::current_global_replica(), ", which runs here, got replica ",
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
