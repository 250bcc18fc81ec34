// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/strategy_extended.h"

#include <algorithm>
#include <atomic>

#include "cohort/base/check.h"
#include "cohort/collectives/worker_collectives.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/internal/own_ops.h"
#include "cohort/strategy/internal/reduce.h"

namespace cohort {

using internal::runtime::ContextFrame;
using internal::runtime::ContextKind;
using internal::runtime::current_context;
using internal::runtime::ThreadContext;

namespace {

PerReplica<Gradient> as_gradients(const PerReplica<Tensor>& value) {
  return value.map([](const Tensor& t) { return Gradient(t); });
}

int next_number() {
  static std::atomic<int> made = 0;
  return ++made;
}

internal::values::DeviceList list_of(const Destinations& to) {
  return std::make_shared<const std::vector<Device>>(to.devices());
}

// Reduced over all replicas of all workers; a copy per destination.
Mirrored<Gradient> reduce_over_workers(const char* operation, StrategyExtended& strategy,
                                       internal::collectives::Communicator& others, ReduceOp op,
                                       const ReduceItem& item,
                                       const CommunicationOptions& options) {
  if (CrossDeviceOps* const own = strategy.custom_cross_device_ops()) {
    return internal::strategy::reduce_through(operation, *own, others, op, std::span(&item, 1),
                                              options)[0];
  }
  const bool sparse = item.value[0].is_sparse();
  std::vector<Tensor> dense;
  std::vector<IndexedSlices> rows;
  for (std::size_t r = 0; r < item.value.size(); ++r) {
    const Gradient& one = item.value[r];
    COHORT_CHECK_ARG(one.has_value(), operation, "expected a value on every replica, got none on ",
                     "replica ", r);
    COHORT_CHECK_ARG(one.is_sparse() == sparse, operation,
                     "expected values of one kind on all replicas, got ",
                     sparse ? "IndexedSlices" : "a dense tensor", " on replica 0 and ",
                     sparse ? "a dense tensor" : "IndexedSlices", " on replica ", r,
                     "; make them all dense (IndexedSlices::to_dense)");
    sparse ? static_cast<void>(rows.push_back(one.slices())) : dense.push_back(one.dense());
  }
  if (sparse) {
    const IndexedSlices joined = internal::collectives::join_across(others, operation, op, rows);
    return Mirrored<Gradient>(
        std::vector<Gradient>(item.destinations.devices().size(), Gradient(joined)));
  }
  const Tensor total = internal::collectives::reduce_across(others, operation, op, dense);
  std::vector<Gradient> out;
  for (const Tensor& copy : strategy.cross_device_ops().broadcast(total, item.destinations)) {
    out.emplace_back(copy);
  }
  return Mirrored<Gradient>(std::move(out));
}

Mirrored<Tensor> as_tensors(const Mirrored<Gradient>& value, const Destinations& to) {
  std::vector<Tensor> out;
  for (const Gradient& g : value) out.push_back(g.dense());
  return Mirrored<Tensor>::placed(std::move(out), list_of(to));
}

// One value for one destination comes back from reductions as it is, but is the program's.
Mirrored<Gradient> copied(const Mirrored<Gradient>& same) {
  const Gradient& g = same[0];
  if (!g.has_value()) return same;
  const Gradient own = g.is_sparse() ? Gradient(internal::strategy::copy_of_slices(g.slices()))
                                     : Gradient(g.dense().clone());
  return Mirrored<Gradient>({own});
}

Mirrored<Tensor> placed(const Mirrored<Tensor>& value, const Destinations& to) {
  return Mirrored<Tensor>::placed({value.begin(), value.end()}, list_of(to));
}

}  // namespace

StrategyExtended::StrategyExtended(bool is_numbered) : number_(is_numbered ? next_number() : 0) {}

data::InputContext StrategyExtended::do_input_context() const {
  const ReplicaLayout replicas = layout();
  return {.num_input_pipelines = replicas.workers(),
          .input_pipeline_id = replicas.worker(),
          .num_replicas_in_sync = replicas.total()};
}

bool StrategyExtended::do_any_worker(bool here) {
  internal::runtime::check_one_worker("[strategy.any_worker] ", layout());
  return here;
}

int64_t StrategyExtended::do_sum_of_workers(int64_t here) {
  internal::runtime::check_one_worker("[strategy.sum_of_workers] ", layout());
  return here;
}

void StrategyExtended::do_apply_gradients(const Gradients& gradients, OptimizerStep& step) {
  step.apply_together(gradients);
}

namespace internal::strategy {
std::shared_ptr<StrategyExtended> current_strategy() {
  StrategyExtended* strategy = runtime::current_context().strategy;
  return strategy != nullptr ? strategy->shared_from_this() : nullptr;
}
}  // namespace internal::strategy

void StrategyExtended::make_current(ThreadContext& context) {
  if (do_is_default()) {
    context.strategy = nullptr;
  } else if (context.strategy != this) {
    context.strategy = this;
    context.creator = parameter_store().get();
    context.seeds = do_seeds();
  }
}

internal::strategy::Reach StrategyExtended::reach(const char* operation) {
  internal::strategy::Reach reach{.ops = custom_cross_device_ops()};
  const ReplicaLayout here = layout();
  if (here.workers() == 1) return reach;
  reach.others = do_others();
  if (reach.others == nullptr) internal::runtime::check_one_worker(operation, here);
  return reach;
}

std::string StrategyExtended::description() const {
  if (do_is_default()) return "the default strategy";
  std::vector<std::string> devices;
  for (const Device& device : do_devices()) devices.push_back(str_cat(device));
  return str_cat(name(), "#", number_, " over ", join(devices, ", "));
}

const internal::values::DeviceList& StrategyExtended::device_list() const {
  std::call_once(devices_once_,
                 [this] { devices_ = std::make_shared<const std::vector<Device>>(do_devices()); });
  return devices_;
}

Destinations destinations_of(const Variable& v) { return v.impl().description().devices; }

std::vector<Device> StrategyExtended::worker_devices() const {
  COHORT_CHECK_STATE(!do_is_default(),
                     "[strategy.worker_devices] expected a strategy with devices, got the default "
                     "one; enter the scope of another");
  return do_devices();
}

std::vector<Device> StrategyExtended::parameter_devices() const {
  COHORT_CHECK_STATE(!do_is_default(),
                     "[strategy.parameter_devices] expected a strategy with devices, got the "
                     "default one; enter the scope of another");
  return do_parameter_devices();
}

Mirrored<Tensor> StrategyExtended::reduce_to(ReduceOpArg op, const PerReplica<Tensor>& value,
                                             const Destinations& to,
                                             const CommunicationOptions& options) {
  static constexpr const char* kOperation = "[strategy.reduce_to] ";
  internal::strategy::check_cross_replica(kOperation);
  if (internal::collectives::Communicator* others = reach(kOperation).others) {
    const ReduceItem item{as_gradients(value), to};
    return internal::strategy::together(others, kOperation, [&] {
      internal::strategy::check_value_count(kOperation, value.size(), num_local_replicas());
      for (const Tensor& one : value) internal::runtime::check_defined(kOperation, one);
      return as_tensors(reduce_over_workers(kOperation, *this, *others, op, item, options), to);
    });
  }
  internal::strategy::check_value_count(kOperation, value.size(), num_local_replicas());
  for (const Tensor& one : value) internal::runtime::check_defined(kOperation, one);
  if (do_is_default()) return Mirrored<Tensor>({value[0].clone()});
  const Mirrored<Gradient> reduced =
      cross_device_ops().reduce(op, as_gradients(value), to, options);
  // One value for one destination comes back as it is.
  const bool is_value = reduced[0].dense().is_same(value[0]);
  return is_value ? placed(Mirrored<Tensor>({value[0].clone()}), to) : as_tensors(reduced, to);
}

Mirrored<Tensor> StrategyExtended::reduce_to(ReduceOpArg op, const Tensor& value,
                                             const Destinations& to) {
  static constexpr const char* kOperation = "[strategy.reduce_to] ";
  internal::strategy::check_cross_replica(kOperation);
  const Tensor one = internal::strategy::reduce_same(kOperation, op, value, num_replicas_in_sync());
  if (do_is_default()) return Mirrored<Tensor>({one.clone()});
  return placed(cross_device_ops().broadcast(one, to), to);
}

Mirrored<Tensor> StrategyExtended::reduce_to(ReduceOpArg op, const Mirrored<Tensor>& value,
                                             const Destinations& to) {
  return reduce_to(op, value.local(), to);
}

std::vector<Mirrored<Gradient>> StrategyExtended::batch_reduce_to(
    ReduceOpArg op, std::span<const ReduceItem> items, const CommunicationOptions& options) {
  static constexpr const char* kOperation = "[strategy.batch_reduce_to] ";
  internal::strategy::check_cross_replica(kOperation);
  const auto check = [&] {
    for (const ReduceItem& item : items) {
      internal::strategy::check_value_count(kOperation, item.value.size(), num_local_replicas());
    }
  };
  if (internal::collectives::Communicator* others = reach(kOperation).others) {
    return internal::strategy::together(others, kOperation, [&] {
      check();
      std::vector<Mirrored<Gradient>> all;
      for (const ReduceItem& item : items) {
        all.push_back(reduce_over_workers(kOperation, *this, *others, op, item, options));
      }
      return all;
    });
  }
  check();
  std::vector<Mirrored<Gradient>> results;
  if (!do_is_default()) {
    results = cross_device_ops().batch_reduce(op, items, options);
  } else {
    for (const ReduceItem& item : items) results.push_back(Mirrored<Gradient>({item.value[0]}));
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i][0].is_same(items[i].value[0])) results[i] = copied(results[i]);
  }
  return results;
}

Mirrored<Tensor> StrategyExtended::broadcast_to(const Tensor& value, const Destinations& to) {
  internal::strategy::check_cross_replica("[strategy.broadcast_to] ");
  internal::runtime::check_defined("[strategy.broadcast_to] ", value);
  if (do_is_default()) {
    throw Unimplemented(
        "[strategy.broadcast_to] expected a strategy with devices for these destinations, got the "
        "default one, which has one place; leave the destinations out");
  }
  return placed(cross_device_ops().broadcast(value, to), to);
}

Mirrored<Tensor> StrategyExtended::broadcast_to(const Tensor& value) {
  internal::strategy::check_cross_replica("[strategy.broadcast_to] ");
  internal::runtime::check_defined("[strategy.broadcast_to] ", value);
  if (do_is_default()) return Mirrored<Tensor>({value.clone()});
  return placed(cross_device_ops().broadcast(value, do_devices()), do_devices());
}

std::vector<Variable> StrategyExtended::update_parts(const Variable& v) const {
  static constexpr const char* kOperation = "[strategy.update] ";
  check_not_mixed(kOperation);
  COHORT_CHECK_ARG(variable_created_in_scope(v), kOperation, "expected a variable made under ",
                   description(), ", got ", internal::variables::label(v.impl()), " of ",
                   internal::variables::owner_of(v.impl()));
  COHORT_CHECK_ARG(v.impl().leaf_count() == num_local_replicas(), kOperation,
                   "expected a whole variable, got component ",
                   internal::variables::label(v.impl()),
                   "; update what value_container(v) returns");
  return v.components();
}

std::vector<int> StrategyExtended::update_places(const Destinations& where) const {
  static constexpr const char* kOperation = "[strategy.update_non_slot] ";
  internal::strategy::check_cross_replica(kOperation);
  check_not_mixed(kOperation);
  const std::vector<Device> parameters = do_parameter_devices();
  std::vector<int> places;
  for (const Device& device : where.devices()) {
    const auto found = std::find(parameters.begin(), parameters.end(), device);
    COHORT_CHECK_ARG(found != parameters.end(), kOperation, "expected parameter devices of ",
                     description(), ", got ", device.short_name());
    places.push_back(static_cast<int>(found - parameters.begin()));
  }
  COHORT_CHECK_ARG(!places.empty(), kOperation, "expected at least 1 device, got none");
  return places;
}

void StrategyExtended::update_each(int count, internal::base::FunctionRef<void(int)> body) {
  ContextFrame frame(internal::runtime::merged_context());
  make_current(frame.context());
  for (int i = 0; i < count; ++i) {
    frame.context().update = i;
    body(i);
  }
}

std::vector<Device> StrategyExtended::non_slot_devices(std::span<const Variable> variables) const {
  COHORT_CHECK_ARG(!variables.empty(),
                   "[strategy.non_slot_devices] expected at least 1 variable, got none");
  const auto first =
      std::min_element(variables.begin(), variables.end(),
                       [](const Variable& a, const Variable& b) { return a.name() < b.name(); });
  return first->impl().description().devices;
}

StrategyExtended::Colocation StrategyExtended::colocate_vars_with(const Variable& v) {
  static constexpr const char* kOperation = "[strategy.colocate_vars_with] ";
  COHORT_CHECK_ARG(variable_created_in_scope(v), kOperation, "expected a variable made under ",
                   description(), ", got ", internal::variables::label(v.impl()), " of ",
                   internal::variables::owner_of(v.impl()));
  check_not_mixed(kOperation);
  COHORT_CHECK_STATE(do_is_default() || current_context().strategy == this, kOperation,
                     "expected to be inside the scope of ", description(),
                     ", got no strategy; enter strategy.scope() first");
  return Colocation(do_colocation(v));
}

std::shared_ptr<internal::variables::VariableCreator> StrategyExtended::do_colocation(
    const Variable&) {
  return parameter_store();
}

std::shared_ptr<void> StrategyExtended::do_cache_reads() {
  throw InvalidArgument(
      str_cat("[strategy.cache_variable_reads] expected a ParameterServerStrategy, got ",
              description(), ", whose variables are this process's; leave the cache out"));
}

Variable StrategyExtended::value_container(const Variable& component) const {
  return component.impl().container();
}

bool StrategyExtended::variable_created_in_scope(const Variable& v) const {
  return v.impl().store() == const_cast<StrategyExtended*>(this)->do_parameter_store().get();
}

Tensor StrategyExtended::read_var(const Variable& v) const {
  static constexpr const char* kOperation = "[strategy.read_var] ";
  COHORT_CHECK_STATE(current_context().kind != ContextKind::kReplica, kOperation,
                     "expected cross-replica context, got a replica; use the variable's value()");
  check_not_mixed(kOperation);
  return v.value();
}

void StrategyExtended::check_not_mixed(const char* operation) const {
  const ThreadContext& here = current_context();
  COHORT_CHECK_STATE(here.strategy == nullptr || here.strategy == this, operation, "expected ",
                     here.strategy->description(), ", which is current, got another strategy (",
                     description(), "): strategies cannot be mixed; leave the scope first");
}

void StrategyExtended::call_for_each_replica(internal::base::FunctionRef<void(int)> body) {
  static constexpr const char* kOperation = "[strategy.run] ";
  check_not_mixed(kOperation);
  COHORT_CHECK_STATE(current_context().kind != ContextKind::kReplica, kOperation,
                     "expected cross-replica context, got a replica: run cannot be nested; call "
                     "the function itself");
  do_run(body);
}

std::shared_ptr<void> StrategyExtended::merge_untyped(const internal::runtime::MeetingKind& kind,
                                                      const void* argument,
                                                      internal::runtime::MergeBody body) {
  static constexpr const char* kOperation = "[replica_context.merge_call] ";
  internal::runtime::ReplicaGroup* group = internal::runtime::current_replica_group();
  const StrategyExtended* own = do_is_default() ? nullptr : this;
  COHORT_CHECK_STATE(group == nullptr || current_context().strategy == own, kOperation,
                     "expected the replica context of the strategy that runs here, got one of ",
                     description(), "; call get_replica_context() inside the function");
  if (group != nullptr) return group->merge_untyped(kind, argument, body);
  COHORT_CHECK_STATE(do_is_default(), kOperation,
                     "expected to be inside strategy.run, got cross-replica context");
  const ContextFrame frame(internal::runtime::merged_context());
  return body(std::span<const void* const>(&argument, 1));
}

}  // namespace cohort
