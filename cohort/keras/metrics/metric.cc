// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/metrics/metric.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/handle.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/dtype_policy.h"
#include "cohort/keras/internal/torch_errors.h"
#include "cohort/keras/metrics/internal/updated_metrics.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/step_undo.h"
#include "cohort/variables/tracked_variable.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras {
namespace {

// The state of one component must never be written by several replicas, nor one of several
// components by nobody in particular.
void check_place(const MetricBase& metric) {
  if (metric.variables().empty()) return;
  const int components = metric.variables().front().impl().leaf_count();
  if (components == current_replica_count()) return;
  COHORT_CHECK_ARG(current_replica() < 0, "[metric.update_state] expected metric \"", metric.name(),
                   "\" to be made under the strategy's scope, got one with state "
                   "for ",
                   components, " of ", current_replica_count(), " replicas");
  throw InvalidArgument(str_cat(
      "[metric.update_state] expected to be inside strategy.run, where "
      "metric \"",
      metric.name(), "\" has state for ", components, " replicas, got cross-replica context"));
}

// A step that fails, here or on another replica, leaves no trace in the state that replicas keep
// for themselves.
void keep_for_failure(const MetricBase& metric) {
  auto* const undo = cohort::internal::variables::StepUndo::current();
  if (undo == nullptr) return;
  for (const Variable& variable : metric.variables()) {
    if (variable.impl().local() != nullptr) undo->keep(variable.impl().leaf().tensor);
  }
}

}  // namespace

std::string MetricBase::class_name() const { return internal::class_name_of(typeid(*this), kKind); }

Config Metric::serialize() const {
  if (function_ != nullptr && is_name()) {
    throw Unimplemented(
        str_cat("[metric] expected a metric with a name or a class, got function \"", deferred_,
                "\", which no config can hold"));
  }
  if (is_name()) return deferred_;
  return internal::class_table<MetricBase>().serialize(*metric_);
}

Metric Metric::deserialize(const Config& config) {
  if (config.is_text()) return config.text();
  // Keras's form of a function.
  if (config.is_object() && config.text("class_name") == "function") return config.text("config");
  return std::static_pointer_cast<MetricBase>(
      internal::class_table<MetricBase>().deserialize(config));
}

Variable MetricBase::add_variable(Shape shape, const std::string& name, DType dtype) {
  variables_.emplace_back(zeros(shape, dtype),
                          VariableOptions{.name = name_ + "/" + name,
                                          .trainable = false,
                                          .synchronization = Synchronization::kOnRead,
                                          .aggregation = Aggregation::kSum});
  return variables_.back();
}

void MetricBase::reset_state() {
  for (const Variable& variable : variables_) variable.assign(0.0);
}

MetricDType::MetricDType(const std::string& name) : name_(name) {
  ConfigValue<DType>::read(name);  // throws for what is none
}

MetricDType ConfigValue<MetricDType>::read(const Config& config) {
  if (!config.is_object()) return config.text();
  const std::string& policy = config.at("config").text("name");
  return policy.starts_with("mixed_") ? MetricDType() : MetricDType(policy);
}

void MetricBase::ensure_built(const Shape& y_true, const Shape& y_pred) {
  if (!waits_for_shapes()) return;
  const auto build_now = [&] {
    if (!waits_for_shapes()) return;
    build(y_true, y_pred);
    waits_.store(false, std::memory_order_release);
  };
  cohort::internal::runtime::ReplicaGroup* group =
      cohort::internal::runtime::current_replica_group();
  if (group == nullptr) {
    const cohort::internal::base::MutexLock lock(build_mutex_);
    return build_now();
  }
  group->merge("metric.build", *this, [&](cohort::internal::runtime::Brought<MetricBase> all) {
    for (const MetricBase& other : all) {
      COHORT_CHECK_STATE(&other == this,
                         "[metric.update_state] expected every replica to update the same metric "
                         "first, got \"",
                         name(), "\" and \"", other.name(), "\"");
    }
    build_now();
  });
}

MetricBase& Metric::base() const {
  if (metric_ == nullptr && deferred_.empty())
    cohort::internal::base::refuse_empty_handle("Metric", "");
  COHORT_CHECK_STATE(metric_ != nullptr, "[metric] expected a metric, got the ",
                     function_ == nullptr ? "name" : "function", " \"", deferred_,
                     "\", which compile() makes a metric of; outside a model write e.g. "
                     "keras::SparseCategoricalAccuracy(), or keras::MeanMetricWrapper(function)");
  return *metric_;
}

MetricBase& Metric::writable() const {
  MetricBase& metric = base();
  check_place(metric);
  internal::UpdatedMetrics::note(*this);
  return metric;
}

void Metric::update_state(const Tensor& y_true, const Tensor& y_pred,
                          const Tensor& sample_weight) const {
  static constexpr const char* kOperation = "[metric.update_state] ";
  MetricBase& metric = writable();
  // A program's own metric may do without predictions.
  cohort::internal::runtime::check_defined(kOperation, metric.takes_values() ? y_pred : y_true);
  const at::NoGradGuard no_grad;
  if (metric.waits_for_shapes()) {
    metric.ensure_built(y_true.defined() ? shape_of(y_true) : Shape{}, shape_of(y_pred));
  }
  keep_for_failure(metric);
  try {
    metric.update_state(y_true, y_pred, sample_weight);
  } catch (const c10::Error& error) {
    internal::throw_for(error,
                        str_cat("[", name(), ".update_state] ", internal::torch_text(error)));
  }
}

void Metric::update_state(const Tensor& values) const {
  COHORT_CHECK_ARG(
      base().takes_values(), "[metric.update_state] expected labels and predictions for metric \"",
      name(),
      "\", got one tensor: only means and sums of values (keras::Mean, keras::Sum) take that");
  update_state({}, values, {});
}

namespace internal {

namespace {
thread_local std::vector<keras::Metric>* t_updated = nullptr;
}  // namespace

UpdatedMetrics::UpdatedMetrics(std::vector<keras::Metric>& list)
    : outer_(std::exchange(t_updated, &list)) {}
UpdatedMetrics::~UpdatedMetrics() { t_updated = outer_; }

void UpdatedMetrics::note(const keras::Metric& metric) {
  if (t_updated == nullptr) return;
  for (const keras::Metric& known : *t_updated) {
    if (&known.base() == &metric.base()) return;
  }
  t_updated->push_back(metric);
}

void add_metrics(const std::vector<keras::Metric>& more, std::vector<keras::Metric>& list) {
  for (const keras::Metric& metric : more) {
    const auto is_it = [&](const keras::Metric& known) { return &known.base() == &metric.base(); };
    if (std::ranges::none_of(list, is_it)) list.push_back(metric);
  }
}

}  // namespace internal

Tensor Metric::result() const {
  const at::NoGradGuard no_grad;
  return base().result();
}

std::shared_ptr<Trackable> Metric::trackable() const {
  cohort::internal::checkpoint::UniqueNames names;
  std::vector<TrackedValue> values;
  for (const Variable& v : base().variables()) {
    const std::string name = names.add(v.name().substr(v.name().rfind('/') + 1));
    values.push_back(cohort::internal::variables::tracked_variable(name, v));
  }
  return trackable_values(std::move(values));
}

void Metric::reset_state() const { base().reset_state(); }

}  // namespace cohort::keras
