// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/local_variable.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/worker_collectives.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/runtime/libtorch.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/internal/component_variable.h"
#include "cohort/variables/internal/scatter.h"
#include "cohort/variables/internal/write.h"
#include "cohort/variables/scope_check.h"

namespace cohort::internal::variables {
namespace {

bool in_replica() { return current_replica() >= 0; }

// One zero for all elements.
bool is_one_zero(const Tensor& x) {
  if (!x.is_cpu() || x.numel() == 0 || x.storage().nbytes() != x.itemsize()) return false;
  const auto* bytes = static_cast<const char*>(x.const_data_ptr());
  return std::all_of(bytes, bytes + x.itemsize(), [](char byte) { return byte == 0; });
}

}  // namespace

void check_scope_of(const char* operation, const char* what, const VariableImpl& variable) {
  if (in_replica()) return;
  const ParameterStore* const store = variable.store();
  const LocalVariables* const home = store == nullptr ? nullptr : store->local();
  if (home == nullptr || (home->options().group == nullptr && home->replicas() == 1)) return;
  const VariableCreator& here = current_variable_creator();
  const bool in_other_scope =
      &here != home && &here != LocalVariables::default_instance().get() && here.local() != nullptr;
  COHORT_CHECK_STATE(!in_other_scope, operation, "expected the scope of ", owner_of(variable),
                     " around ", what, " its variable ", label(variable), ", or none, got that of ",
                     here.owner(), ": strategies cannot be mixed; leave that scope first");
}

LocalVariable::LocalVariable(Description description, const Tensor& initial,
                             std::shared_ptr<ArenaRange> range,
                             std::shared_ptr<LocalVariables> creator)
    : LocalImpl(std::move(description)),
      strategy_(std::move(creator)),
      group_(strategy_->options().group),
      is_plain_(group_ == nullptr && strategy_->replicas() == 1),
      components_(static_cast<std::size_t>(strategy_->replicas())) {
  store_ = strategy_.get();
  shares_memory_ = strategy_->options().placement == ParameterPlacement::kCentral &&
                   description_.synchronization == Synchronization::kOnWrite;
  for (int r = 0; r < leaf_count(); ++r) {
    leaf_of(r).range = range;
    make_component(r, initial);
  }
}

void LocalVariable::make_component(int replica, const Tensor& initial) {
  const at::NoGradGuard no_grad;
  Component& c = leaf_of(replica);
  const bool is_written = replica > 0 && shares_memory_;
  const auto& devices = description_.devices;
  const Device& own = devices[std::min(static_cast<std::size_t>(replica), devices.size() - 1)];
  if (c.range) {
    c.tensor = c.arena()->parameter_view(replica, c.range, description_.shape);
    // Places are zero, and take no memory until they are written.
    const bool is_there = c.tensor.is_cpu() && is_one_zero(initial);
    if (!is_written && !is_there) c.tensor.copy_(initial);
  } else {
    c.tensor = is_written ? leaf_of(0).tensor : runtime::copy_on(own, initial);
  }
  if (!description_.trainable) return;
  // LibTorch keeps the stream on which a leaf's node is made, and gradients would meet there.
  const auto guard = runtime::device_backend(own).guard(own);
  c.tensor.set_requires_grad(true);
  c.accumulator = std::make_shared<runtime::GraphNodePtr<torch::autograd::Node>>(
      torch::autograd::impl::grad_accumulator(c.tensor));
}

int LocalVariable::local_index() const {
  const int replica = current_replica();
  if (replica < 0 || is_plain_) return 0;
  if (runtime::current_replica_group() != group_) check_replica("[variable] ");
  return replica;
}

void LocalVariable::check_replica(const char* operation) const {
  COHORT_CHECK_STATE(group_ == nullptr && current_replica_count() == leaf_count(), operation,
                     "expected variable ", label(*this),
                     " inside run of the strategy that it was made under (", owner_of(*this), ", ",
                     leaf_count(), " replicas), got it in a replica of another strategy (",
                     current_replica_count(),
                     " replicas); make it under that strategy's scope, or pass its value()");
}

// A plain variable has one storage and nobody who would merge what several replicas write.
void LocalVariable::check_writable(const char* operation) const {
  COHORT_CHECK_STATE(!is_plain_ || current_replica_count() == 1 || !in_replica(), operation,
                     "expected a variable made under this strategy's scope, got ", label(*this),
                     ", made outside of every strategy: ", current_replica_count(),
                     " replicas would write it at once; make it inside strategy.scope()");
  check_scope_of(operation, "a write of", *this);
  local_index();
}

bool LocalVariable::is_alone() const {
  return leaf_count() == 1 && strategy_->layout().workers() == 1;
}

bool LocalVariable::reads_component() const {
  return description_.synchronization == Synchronization::kOnWrite || is_alone() || in_replica();
}

Tensor LocalVariable::value() const {
  if (reads_component()) return components_[static_cast<std::size_t>(local_index())].tensor;
  return reduced_value([](const Tensor& component) { return component; });
}

Tensor LocalVariable::gather_rows(const Tensor& rows) const {
  const auto part = [&](const Tensor& component) { return select_rows(component, rows); };
  if (reads_component()) return part(components_[static_cast<std::size_t>(local_index())].tensor);
  return reduced_value(part);
}

bool LocalVariable::writes_own_component() const {
  return description_.synchronization == Synchronization::kOnRead ||
         description_.aggregation == Aggregation::kNone;
}

Tensor LocalVariable::write(Write kind, const Tensor& x) {
  check_writable(operation_name(kind));
  check_value(operation_name(kind), x);
  if (!in_replica() || is_alone()) return write_everywhere(kind, x);
  return write_merged(kind, x, /*is_literal=*/false);
}

Tensor LocalVariable::write(Write kind, double literal) {
  check_writable(operation_name(kind));
  const Tensor x = number_of(operation_name(kind), literal, description_.dtype);
  if (!in_replica() || is_alone()) return write_everywhere(kind, x);
  return write_merged(kind, x, /*is_literal=*/true);
}

void LocalVariable::write(Write kind, const PerReplica<Tensor>& x) {
  COHORT_CHECK_STATE(!in_replica(), operation_name(kind),
                     "expected cross-replica context for a value per replica, got a replica");
  check_writable(operation_name(kind));
  COHORT_CHECK_ARG(static_cast<int>(x.size()) == leaf_count(), operation_name(kind), "expected ",
                   leaf_count(), " values for variable ", label(*this), ", got ", x.size());
  std::vector<Tensor> values;
  for (const Tensor& one : x) {
    check_value(operation_name(kind), one);
    values.push_back(apart(one));
  }
  write_copies([&](Tensor& to, int replica) {
    write_tensor(to, kind, values[static_cast<std::size_t>(replica)]);
  });
}

std::vector<Variable> LocalVariable::components() {
  // This worker's only component is not the whole variable, which all workers write together.
  if (copies() == 1 && strategy_->layout().workers() == 1) return {Variable(shared_from_this())};
  std::vector<Variable> out;
  const auto self = std::static_pointer_cast<LocalImpl>(shared_from_this());
  for (int r = 0; r < leaf_count(); ++r) {
    Description one = description_;
    if (r > 0) one.name += str_cat("/replica_", r);
    one.devices = {description_.devices[static_cast<std::size_t>(r)]};
    out.emplace_back(std::make_shared<ComponentVariable>(std::move(one), self, r));
  }
  return out;
}

void LocalVariable::write_copies(base::FunctionRef<void(Tensor& to, int replica)> write) {
  write(leaf_of(0).tensor, 0);
  for (int r = 1; r < leaf_count(); ++r) {
    Tensor& to = leaf_of(r).tensor;
    if (!shares_memory_) {
      write(to, r);
    } else if (!to.is_same(leaf_of(0).tensor)) {
      to.unsafeGetTensorImpl()->bump_version();  // its memory changed under it
    }
  }
}

// A write must not change what the next component is written from.
Tensor LocalVariable::apart(const Tensor& x) const {
  for (const Component& c : components_) {
    if (x.has_storage() && x.storage().is_alias_of(c.tensor.storage())) return x.clone();
  }
  return x;
}

IndexedSlices LocalVariable::apart(const IndexedSlices& slices) const {
  return {apart(slices.values), apart(slices.indices), slices.dense_shape};
}

Tensor LocalVariable::write_everywhere(Write kind, const Tensor& value_or_view) {
  const Tensor x = apart(value_or_view);
  const bool summed_on_read = description_.synchronization == Synchronization::kOnRead &&
                              description_.aggregation == Aggregation::kSum && !is_alone();
  COHORT_CHECK_ARG(!summed_on_read || kind == Write::kAssign, operation_name(kind),
                   "expected a replica: variable ", label(*this),
                   " is summed on read, so adding to it cross-replica is not defined; add inside "
                   "strategy.run, or assign");
  // Each replica of each worker has its share; every worker is here and takes its own.
  const ReplicaLayout layout = strategy_->layout();
  std::vector<Tensor> shares(static_cast<std::size_t>(layout.total()), x);
  if (summed_on_read) shares = shares_of(x.to(description_.dtype), layout.total());
  write_copies([&](Tensor& to, int replica) {
    write_tensor(to, kind, shares[static_cast<std::size_t>(layout.global_id(replica))]);
  });
  // Not value(): nobody has to ask the other workers for what is known, and writing works where
  // several components have no one value.
  if (summed_on_read && layout.workers() > 1) return x;
  const bool is_known = description_.aggregation == Aggregation::kNone || layout.workers() > 1;
  return is_known ? leaf_of(0).tensor : value();
}

Tensor LocalVariable::reduced_value(base::FunctionRef<Tensor(const Tensor& component)> part) const {
  COHORT_CHECK_ARG(description_.aggregation != Aggregation::kNone,
                   "[variable.value] expected an aggregation to read variable ", label(*this),
                   " (synchronized on read) cross-replica, got none; make it with .aggregation = "
                   "kSum, kMean or kOnlyFirstReplica, or read its components()");
  collectives::Communicator* others = strategy_->others();
  if (others == nullptr) runtime::check_one_worker("[variable.value] ", strategy_->layout());
  const at::NoGradGuard no_grad;
  if (description_.aggregation == Aggregation::kOnlyFirstReplica) {
    const Tensor first = part(components_[0].tensor);
    return others != nullptr ? collectives::broadcast_across(*others, "[variable.value] ",
                                                             text("[variable.value] "), first)
                             : first;
  }
  std::vector<Tensor> values;
  for (const Component& c : components_) values.push_back(part(c.tensor));
  return reduced("[variable.value] ", values);
}

// Of all replicas of all workers.
Tensor LocalVariable::reduced(const char* operation, std::span<const Tensor> values) const {
  collectives::Communicator* others = strategy_->others();
  if (others == nullptr) return reductions::reduce_in_order(reduce_op(), values);
  return collectives::reduce_across(*others, operation, reduce_op(), values, text(operation));
}

// What workers have to agree on: "variable.assign of variable "w", ". With "[variable.assign] ".
std::string LocalVariable::text(std::string_view operation) const {
  return str_cat(operation.substr(1, operation.find(']') - 1), " of variable \"", description_.name,
                 "\", ");
}

void LocalVariable::check_aggregation(const char* operation) const {
  COHORT_CHECK_ARG(description_.aggregation != Aggregation::kNone, operation,
                   "expected an aggregation to write variable ", label(*this),
                   " inside run, for all replicas share its one copy, got none; make it with "
                   ".aggregation = kSum, kMean or kOnlyFirstReplica, or write it cross-replica");
}

ReduceOp LocalVariable::reduce_op() const {
  return description_.aggregation == Aggregation::kMean ? ReduceOp::kMean : ReduceOp::kSum;
}

Tensor LocalVariable::write_merged(Write kind, const Tensor& x, bool is_literal) {
  if (writes_own_component() && !shares_memory_) {
    write_tensor(leaf().tensor, kind, apart(x));
    return value();
  }
  check_aggregation(operation_name(kind));
  merge({this, operation_name(kind), &x, is_literal}, [&](Contributions all) {
    const bool same = is_one_value(all);
    Tensor merged;
    agree(all[0], [&] { merged = aggregated(all, same); });
    write_copies([&](Tensor& to, int) { write_tensor(to, kind, merged); });
  });
  return value();
}

void LocalVariable::merge(const Contribution& own, base::FunctionRef<void(Contributions)> body) {
  if (strategy_->others() == nullptr) runtime::check_one_worker(own.operation, strategy_->layout());
  runtime::current_replica_group()->merge("variable.write", own, [&](Contributions all) {
    const at::NoGradGuard no_grad;
    for (std::size_t r = 0; r < all.size(); ++r) {
      COHORT_CHECK_STATE(all[r].variable == this && all[r].operation == own.operation,
                         own.operation, "expected every replica to write variable ", label(*this),
                         " here, got ", all[r].operation, "of ", label(*all[r].variable),
                         " on replica ", r);
    }
    body(all);
  });
}

// Behind it no worker can fail before it has written: all write, or none.
void LocalVariable::agree(const Contribution& first, base::FunctionRef<void()> exchange) const {
  collectives::Communicator* const others = strategy_->others();
  if (others == nullptr) return exchange();
  others->take_turn(first.operation, [&] {
    exchange();
    others->commit();
  });
}

// What is one object on every replica (a number, a captured tensor) is no value per replica.
void LocalVariable::check_summable(const Contribution& first, bool is_same,
                                   const char* what) const {
  COHORT_CHECK_ARG(!is_same || description_.aggregation != Aggregation::kSum, first.operation,
                   "expected a value of each replica for variable ", label(*this),
                   " (aggregation sum), got the same ", what, " on each of ", leaf_count(),
                   " replicas, which cannot be summed; pass a tensor made in the replica");
}

// Of the only replica of a worker nobody can tell by looking whether others brought the same.
bool LocalVariable::is_one_object(Contributions all, bool is_same) const {
  return is_same && (strategy_->others() == nullptr || all.size() > 1 || all[0].is_literal);
}

bool LocalVariable::is_one_value(Contributions all) const {
  const Contribution& first = all[0];
  const bool same =
      is_one_object(all, std::all_of(all.begin(), all.end(), [&](const Contribution& one) {
                      return one.value->is_same(*first.value) ||
                             (one.is_literal && first.is_literal && one.value->equal(*first.value));
                    }));
  check_summable(first, same, first.is_literal ? "number" : "tensor");
  return same;
}

Tensor LocalVariable::aggregated(Contributions all, bool same) const {
  const Contribution& first = all[0];
  collectives::Communicator* others = strategy_->others();
  const bool only_first = description_.aggregation == Aggregation::kOnlyFirstReplica;
  if (others == nullptr && (same || only_first)) return apart(first.value->detach());
  const auto shaped = [&](const Contribution& one) {
    const Tensor x = one.value->detach().to(description_.dtype);
    return x.dim() == 0 ? x.expand(description_.shape) : x;
  };
  if (only_first)
    return collectives::broadcast_across(*others, first.operation, text(first.operation),
                                         shaped(first));
  // One of each replica, even where they are the same: on another worker they may differ.
  std::vector<Tensor> values;
  for (const Contribution& one : all) values.push_back(shaped(one));
  return reduced(first.operation, values);
}

void LocalVariable::scatter(Scatter kind, const IndexedSlices& slices) {
  const char* operation = operation_name(kind);
  if (description_.synchronization == Synchronization::kOnRead) {
    throw Unimplemented(str_cat(operation, "expected a variable synchronized on write, got ",
                                label(*this),
                                ", synchronized on read; scatter to one of its components()"));
  }
  check_writable(operation);
  check_scattered(operation, *this, slices);
  if (!in_replica() || is_alone()) {
    const IndexedSlices x = apart(slices);
    return write_copies([&](Tensor& to, int) { scatter_rows(to, kind, x); });
  }
  if (writes_own_component() && !shares_memory_) {
    return scatter_rows(leaf().tensor, kind, apart(slices));
  }
  check_aggregation(operation);
  const bool joins = kind == Scatter::kAdd || kind == Scatter::kSub || kind == Scatter::kMul ||
                     kind == Scatter::kDiv;
  if (!joins && description_.aggregation != Aggregation::kOnlyFirstReplica) {
    throw Unimplemented(str_cat(operation, "expected aggregation none or only_first_replica of ",
                                label(*this), " inside run, got ", reduce_op_name(reduce_op()),
                                ": minima, maxima and updates of several replicas have no sum; "
                                "all_reduce them and scatter cross-replica"));
  }
  merge({.variable = this, .operation = operation, .slices = &slices}, [&](Contributions all) {
    const bool same = are_same_rows(all);
    IndexedSlices x;
    agree(all[0], [&] { x = joined(all, same); });
    write_copies([&](Tensor& to, int) { scatter_rows(to, kind, x); });
  });
}

bool LocalVariable::are_same_rows(Contributions all) const {
  const IndexedSlices& first = *all[0].slices;
  const bool same =
      is_one_object(all, std::all_of(all.begin(), all.end(), [&](const Contribution& one) {
                      return one.slices->values.is_same(first.values) &&
                             one.slices->indices.is_same(first.indices);
                    }));
  check_summable(all[0], same, "slices");
  return same;
}

IndexedSlices LocalVariable::joined(Contributions all, bool same) const {
  const IndexedSlices& first = *all[0].slices;
  collectives::Communicator* others = strategy_->others();
  const bool only_first = description_.aggregation == Aggregation::kOnlyFirstReplica;
  if (others == nullptr && (same || only_first)) return apart(first);
  std::vector<Tensor> values;
  std::vector<Tensor> indices;
  for (const Contribution& one : all) {
    if (!values.empty() && only_first) break;
    values.push_back(one.slices->values.detach());
    indices.push_back(one.slices->indices.to(kInt64));
  }
  const c10::Device here = values[0].device();
  IndexedSlices rows{cohort::concat(reductions::brought_to(here, values)),
                     cohort::concat(reductions::brought_to(here, indices)), description_.shape};
  const auto count = static_cast<int64_t>(values.size());
  if (others != nullptr) rows = joined_across(*others, all[0].operation, rows, only_first);
  if (description_.aggregation == Aggregation::kMean) {
    rows.values.div_(count * strategy_->layout().workers());
  }
  return rows;
}

// The rows of all workers in their order, or those of the first one.
IndexedSlices LocalVariable::joined_across(collectives::Communicator& others, const char* operation,
                                           const IndexedSlices& rows, bool only_first) const {
  std::vector<int64_t> sizes;
  Tensor values =
      collectives::gather_across(others, operation, rows.values, 0, &sizes, text(operation));
  Tensor indices = collectives::gather_across(others, operation, rows.indices, 0);
  if (only_first) {
    values = values.narrow(0, 0, sizes[0]);
    indices = indices.narrow(0, 0, sizes[0]);
  }
  return {values, indices, rows.dense_shape};
}

}  // namespace cohort::internal::variables
