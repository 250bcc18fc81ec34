// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/local_variables.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "cohort/base/check.h"
#include "cohort/collectives/local_reduce.h"
#include "cohort/runtime/libtorch.h"
#include "cohort/runtime/memory.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::internal {
namespace {

bool in_replica() { return current_replica() >= 0; }

void write_tensor(Tensor& to, Write kind, const Tensor& x) {
  const at::NoGradGuard no_grad;
  switch (kind) {
    case Write::kAssign:
      to.copy_(x);
      break;
    case Write::kAdd:
      to.add_(x.to(to.scalar_type()));
      break;
    case Write::kSub:
      to.sub_(x.to(to.scalar_type()));
      break;
  }
}

const char* write_name(Write kind) {
  switch (kind) {
    case Write::kAssign:
      return "[variable.assign] ";
    case Write::kAdd:
      return "[variable.assign_add] ";
    case Write::kSub:
      return "[variable.assign_sub] ";
  }
  return "[variable.assign] ";
}

ReduceOp as_reduce_op(Aggregation aggregation) {
  return aggregation == Aggregation::kMean ? ReduceOp::kMean : ReduceOp::kSum;
}

/// One component alone, as components() hands it out.
class ComponentVariable final : public VariableImpl {
 public:
  ComponentVariable(Description description, std::shared_ptr<VariableImpl> whole, int replica)
      : VariableImpl(std::move(description)), whole_(std::move(whole)), replica_(replica) {
    range_ = whole_->range();
    numel_ = whole_->numel();
    creator_ = whole_->creator();
  }
  Tensor value() const override { return whole_->component(replica_).tensor; }
  Tensor write(Write kind, const Tensor& x) override {
    write_tensor(whole_->component(replica_).tensor, kind, x);
    return value();
  }
  Tensor write(Write kind, double literal) override {
    return write(kind, full({}, literal, description_.dtype));
  }
  void write(Write, const PerReplica<Tensor>&) override {
    throw InvalidArgument(str_cat("[variable.assign] expected one tensor for component \"",
                                  description_.name, "\", got a value per replica"));
  }
  std::vector<Variable> components() override { return {Variable(shared_from_whole())}; }
  Component& local_component() override { return whole_->component(replica_); }
  Component& component(int) override { return whole_->component(replica_); }
  int component_count() const override { return 1; }

 private:
  std::shared_ptr<VariableImpl> shared_from_whole() const {
    return std::make_shared<ComponentVariable>(description_, whole_, replica_);
  }
  const std::shared_ptr<VariableImpl> whole_;
  const int replica_;
};

class LocalVariable final : public VariableImpl,
                            public std::enable_shared_from_this<LocalVariable> {
 public:
  LocalVariable(Description description, const Tensor& initial, std::shared_ptr<ArenaRange> range,
                std::shared_ptr<const LocalVariables> creator)
      : VariableImpl(std::move(description)),
        strategy_(std::move(creator)),
        components_(static_cast<std::size_t>(strategy_->replicas())) {
    range_ = std::move(range);
    numel_ = initial.numel();
    creator_ = strategy_.get();
    for (int r = 0; r < component_count(); ++r) make_component(r, initial);
  }

  Component& component(int replica) override {
    return components_[static_cast<std::size_t>(replica)];
  }
  int component_count() const override { return static_cast<int>(components_.size()); }
  Component& local_component() override { return component(local_index()); }

  Tensor value() const override {
    if (in_replica() || component_count() == 1 ||
        description_.synchronization == Synchronization::kOnWrite) {
      return components_[static_cast<std::size_t>(local_index())].tensor;
    }
    return reduced_value();
  }

  Tensor write(Write kind, const Tensor& x) override {
    check_shape(kind, x);
    if (!in_replica() || component_count() == 1) return write_everywhere(kind, x);
    if (writes_own_component()) {
      write_tensor(local_component().tensor, kind, apart(x));
      return value();
    }
    merge_and_write(kind, x);
    return value();
  }

  Tensor write(Write kind, double literal) override {
    const bool aggregated = in_replica() && component_count() > 1 && !writes_own_component();
    COHORT_CHECK_ARG(!aggregated || description_.aggregation != Aggregation::kSum, write_name(kind),
                     "expected a value of this replica for variable \"", description_.name,
                     "\" (aggregation sum), got a number: the same on each of ", component_count(),
                     " replicas, it cannot be summed; pass a tensor");
    return write(kind, full({}, literal, description_.dtype));
  }

  void write(Write kind, const PerReplica<Tensor>& x) override {
    COHORT_CHECK_STATE(!in_replica(), write_name(kind),
                       "expected cross-replica context for a value per replica, got a replica");
    COHORT_CHECK_ARG(static_cast<int>(x.size()) == component_count(), write_name(kind), "expected ",
                     component_count(), " values, got ", x.size());
    std::vector<Tensor> values;
    for (const Tensor& one : x) {
      check_shape(kind, one);
      values.push_back(apart(one));
    }
    for (int r = 0; r < component_count(); ++r) {
      write_tensor(component(r).tensor, kind, values[static_cast<std::size_t>(r)]);
    }
  }

  std::vector<Variable> components() override {
    if (component_count() == 1) return {Variable(shared_from_this())};
    std::vector<Variable> out;
    for (int r = 0; r < component_count(); ++r) {
      Description one = description_;
      if (r > 0) one.name += str_cat("/replica_", r);
      one.devices = {description_.devices[static_cast<std::size_t>(r)]};
      out.emplace_back(std::make_shared<ComponentVariable>(std::move(one), shared_from_this(), r));
    }
    return out;
  }

 private:
  int local_index() const {
    const int replica = current_replica();
    if (replica < 0 || component_count() == 1) return 0;
    COHORT_CHECK_STATE(current_replica_count() == component_count(), "[variable] variable \"",
                       description_.name, "\" belongs to a strategy of ", component_count(),
                       " replicas, got used in a replica of a strategy of ",
                       current_replica_count());
    return replica;
  }

  void make_component(int replica, const Tensor& initial) {
    Component& c = component(replica);
    c.tensor =
        range_ ? arena()->parameter_view(replica, range_, description_.shape) : initial.clone();
    const at::NoGradGuard no_grad;
    if (range_) c.tensor.copy_(initial);
    if (!description_.trainable) return;
    c.tensor.set_requires_grad(true);
    c.accumulator = std::make_shared<NodePtr<torch::autograd::Node>>(
        torch::autograd::impl::grad_accumulator(c.tensor));
  }

  bool writes_own_component() const {
    return description_.synchronization == Synchronization::kOnRead ||
           description_.aggregation == Aggregation::kNone;
  }

  void check_shape(Write kind, const Tensor& x) const {
    COHORT_CHECK_ARG(x.dim() == 0 || shape_of(x) == description_.shape, write_name(kind),
                     "expected shape ", bracketed(description_.shape), " for variable \"",
                     description_.name, "\", got ", bracketed(x.sizes()));
  }

  // A write must not change what the next component is written from.
  Tensor apart(const Tensor& x) const {
    for (const Component& c : components_) {
      if (x.has_storage() && x.storage().is_alias_of(c.tensor.storage())) return x.clone();
    }
    return x;
  }

  Tensor write_everywhere(Write kind, const Tensor& value_or_view) {
    const Tensor x = apart(value_or_view);
    const bool summed_on_read = description_.synchronization == Synchronization::kOnRead &&
                                description_.aggregation == Aggregation::kSum &&
                                component_count() > 1;
    COHORT_CHECK_ARG(!summed_on_read || kind == Write::kAssign, write_name(kind),
                     "expected a replica: variable \"", description_.name,
                     "\" is summed on read, so adding to it cross-replica is not defined");
    for (int r = 0; r < component_count(); ++r) {
      write_tensor(component(r).tensor, kind, summed_on_read ? share_of(x, r) : x);
    }
    return value();
  }

  // x / R each; integers so that the shares add up to x, the first ones getting the remainder.
  Tensor share_of(const Tensor& x, int replica) const {
    if (at::isFloatingType(description_.dtype)) return x.to(description_.dtype) / component_count();
    const Tensor whole = x.to(description_.dtype);
    const Tensor share = whole.div(component_count(), "floor");
    const Tensor remainder = whole - share * component_count();
    return share + remainder.gt(replica).to(description_.dtype);
  }

  Tensor reduced_value() const {
    COHORT_CHECK_ARG(description_.aggregation != Aggregation::kNone,
                     "[variable.value] expected an aggregation to read variable \"",
                     description_.name, "\" (synchronized on read) cross-replica, got none");
    if (description_.aggregation == Aggregation::kOnlyFirstReplica) return components_[0].tensor;
    std::vector<Tensor> values;
    for (const Component& c : components_) values.push_back(c.tensor);
    const at::NoGradGuard no_grad;
    return reduce_in_order(as_reduce_op(description_.aggregation), values);
  }

  void merge_and_write(Write kind, const Tensor& x) {
    static const char tag = 0;
    current_replica_group()->merge(&tag, &x, [&](std::span<const void* const> arguments) {
      const at::NoGradGuard no_grad;
      std::vector<Tensor> values;
      for (const void* argument : arguments) {
        values.push_back(static_cast<const Tensor*>(argument)->detach());
      }
      const Tensor merged = description_.aggregation == Aggregation::kOnlyFirstReplica
                                ? apart(values[0])
                                : reduce_in_order(as_reduce_op(description_.aggregation), values);
      for (int r = 0; r < component_count(); ++r) write_tensor(component(r).tensor, kind, merged);
      return std::shared_ptr<void>();
    });
  }

  const std::shared_ptr<const LocalVariables> strategy_;
  std::vector<Component> components_;
};

void check_options(const VariableOptions& options, DType dtype) {
  COHORT_CHECK_ARG(options.synchronization != Synchronization::kNone,
                   "[variable] expected synchronization on write or on read for \"", options.name,
                   "\", got none, which no strategy supports");
  COHORT_CHECK_ARG(options.aggregation != Aggregation::kMean || at::isFloatingType(dtype),
                   "[variable] expected a floating type for \"", options.name,
                   "\", which is aggregated by mean, got ", dtype_name(dtype));
}

}  // namespace

std::shared_ptr<VariableImpl> LocalVariables::create(const InitialValue& initial,
                                                     const VariableOptions& options) {
  ReplicaGroup* group = current_replica_group();
  if (!in_replica() || group->size() == 1) return create_now(initial, options);
  // Replica 0 creates for all, so that creation order and initial values agree.
  static const char tag = 0;
  return std::static_pointer_cast<VariableImpl>(
      group->merge(&tag, &options, [&](std::span<const void* const> arguments) {
        for (const void* argument : arguments) {
          const auto& other = *static_cast<const VariableOptions*>(argument);
          COHORT_CHECK_STATE(other.name == options.name,
                             "[variable] expected every replica to create \"", options.name,
                             "\" here, got \"", other.name, "\"");
        }
        return std::shared_ptr<void>(create_now(initial, options));
      }));
}

std::shared_ptr<VariableImpl> LocalVariables::create_now(const InitialValue& initial,
                                                         const VariableOptions& options) {
  const at::NoGradGuard no_grad;
  const Tensor value = initial.make(options.shape, options.dtype);
  check_options(options, value.scalar_type());
  VariableImpl::Description d;
  d.name = options.name.empty() ? "Variable" : options.name;
  d.shape = shape_of(value);
  d.dtype = value.scalar_type();
  d.synchronization = options.synchronization == Synchronization::kOnRead
                          ? Synchronization::kOnRead
                          : Synchronization::kOnWrite;
  d.aggregation = options.aggregation;
  d.trainable = options.trainable.value_or(d.synchronization != Synchronization::kOnRead) &&
                at::isFloatingType(d.dtype);
  d.constraint = options.constraint;
  d.devices = options_.devices;
  std::shared_ptr<ArenaRange> range;
  if (d.trainable) range = place(d.dtype, value.numel());
  return std::make_shared<LocalVariable>(std::move(d), value, std::move(range), shared_from_this());
}

std::shared_ptr<ArenaRange> LocalVariables::place(DType dtype, int64_t numel) {
  std::scoped_lock lock(mutex_);
  std::shared_ptr<Arena>& arena = arenas_[dtype];
  if (arena) {
    if (const auto offset = arena->allocate(numel)) {
      return std::make_shared<ArenaRange>(arena, *offset, numel);
    }
  }
  arena = Arena::create(replicas(), dtype);
  const auto offset = arena->allocate(numel);
  if (!offset) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[variable] expected at most the machine's memory, got ", numel,
                        " elements of ", dtype_name(dtype)));
  }
  return std::make_shared<ArenaRange>(arena, *offset, numel);
}

const std::shared_ptr<LocalVariables>& LocalVariables::default_instance() {
  // Never destroyed: variables of static storage may outlive every other static.
  static const auto& instance =
      *new std::shared_ptr<LocalVariables>(std::make_shared<LocalVariables>());
  return instance;
}

}  // namespace cohort::internal
