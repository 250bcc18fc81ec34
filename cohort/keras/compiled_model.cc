// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/compiled_model.h"

#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/step_undo.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::internal {

namespace {

Variable make_state(const char* name) {
  return Variable(0.0, {.name = name,
                        .trainable = false,
                        .synchronization = Synchronization::kOnRead,
                        .aggregation = Aggregation::kSum,
                        .dtype = kFloat64});
}

void check_made_under(const Strategy& strategy, const keras::Metric& metric) {
  for (const Variable& v : metric.variables()) {
    COHORT_CHECK_ARG(strategy.extended().variable_created_in_scope(v),
                     "[compile] expected metrics made in the scope of the model's strategy (",
                     strategy.extended().description(), "), got \"", metric.name(),
                     "\" made under another one");
  }
}

}  // namespace

RunningStep::RunningStep(ReplicaStep& step) : frame_(current_context()) {
  frame_.context().step = &step;
  frame_.context().shares = &step.shares;
}

LossTracker::LossTracker() : total_(make_state("loss/total")), count_(make_state("loss/count")) {}

void LossTracker::add(const Tensor& detached_loss, double weight, int64_t count) {
  const Tensor total = total_.local_tensor(), examples = count_.local_tensor();
  // There is no update yet, and may be none: of a step that fails nothing stays in the mean.
  if (StepUndo* undo = StepUndo::current(); undo != nullptr) {
    undo->keep(total);
    undo->keep(examples);
  }
  total.add_(detached_loss, weight);
  examples.add_(static_cast<double>(count));
}

Tensor LossTracker::result() const { return total_.value() / count_.value().clamp_min(1); }

bool LossTracker::is_finite() const {
  VariableImpl& total = total_.impl();
  for (int r = 0; r < total.component_count(); ++r) {
    if (!std::isfinite(*total.component(r).tensor.const_data_ptr<double>())) return false;
  }
  return true;
}

void LossTracker::reset() const {
  const Tensor zero = scalar(0, kFloat64);
  total_.assign(zero);
  count_.assign(zero);
}

CompiledModel::CompiledModel(keras::CompileOptions compile_options, const Strategy& strategy)
    : options(std::move(compile_options)),
      given_metrics(options.metrics),
      given_weighted_metrics(options.weighted_metrics),
      steps(static_cast<std::size_t>(strategy.extended().num_local_replicas())),
      strategy_(strategy) {
  COHORT_CHECK_ARG(options.steps_per_execution > 0,
                   "[compile] expected steps_per_execution > 0, got ", options.steps_per_execution);
  COHORT_CHECK_ARG(static_cast<bool>(options.optimizer),
                   "[compile] expected an optimizer, got an empty one; give its name, as in "
                   "{.optimizer = \"adam\"}, or leave it out for Keras's default, rmsprop");
  list_metrics();
}

void CompiledModel::list_metrics() {
  keras::Logs all;
  std::set<std::string> names = {"loss"};
  bool resolved = true;
  all.set("loss", [loss = loss] { return loss.result(); });
  for (const auto* metrics : {&options.metrics, &options.weighted_metrics}) {
    for (const keras::Metric& metric : *metrics) {
      COHORT_CHECK_ARG(names.insert(metric.name()).second,
                       "[compile] expected metrics of unique names, ", "got \"", metric.name(),
                       "\" twice");
      if (metric.needs_resolving()) resolved = false;
      if (metric.is_name()) continue;
      check_made_under(strategy_, metric);
      all.set(metric.name(), [metric] { return metric.result(); });
    }
  }
  live = all.sorted();
  resolved_.store(resolved, std::memory_order_release);
}

void CompiledModel::resolve_metrics(const Shape& y_true, const Shape& y_pred) {
  for (auto* metrics : {&options.metrics, &options.weighted_metrics}) {
    for (keras::Metric& metric : *metrics) metric = metric.resolve(y_true, y_pred);
  }
  resolved_for_ = {y_true, y_pred};
  list_metrics();
  if (const auto call = std::exchange(when_resolved, nullptr)) call();
}

std::vector<Variable> CompiledModel::metric_variables() const {
  std::vector<Variable> out = loss.variables();
  for (const auto* metrics : {&options.metrics, &options.weighted_metrics}) {
    for (const keras::Metric& metric : *metrics) {
      if (metric.is_name()) continue;
      for (const Variable& v : metric.variables()) out.push_back(v);
    }
  }
  return out;
}

void CompiledModel::reset_metrics() const {
  loss.reset();
  for (const auto* metrics : {&options.metrics, &options.weighted_metrics}) {
    for (const keras::Metric& metric : *metrics) {
      if (!metric.is_name()) metric.reset_state();
    }
  }
}

void CompiledModel::check_scope() const {
  COHORT_CHECK_STATE(
      current_replica() < 0 || current_replica_count() == static_cast<int>(steps.size()),
      "[compute_loss] expected a model made and compiled under the scope of this strategy (",
      current_replica_count(), " replicas), got one for ", steps.size());
}

}  // namespace cohort::internal
