// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/compiled_model.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/keras/metrics/internal/updated_metrics.h"
#include "cohort/keras/step_capture.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/step_undo.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras::internal {

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

RunningStep::RunningStep(cohort::internal::strategy::ReplicaStep& step)
    : frame_(cohort::internal::runtime::current_context()) {
  frame_.context().step = &step;
}

LossTracker::LossTracker() : total_(make_state("loss/total")), count_(make_state("loss/count")) {}

void LossTracker::add(const Tensor& detached_loss, double weight, int64_t count) {
  const Tensor total = total_.local_tensor(), examples = count_.local_tensor();
  // There is no update yet, and may be none: of a step that fails nothing stays in the mean.
  if (cohort::internal::variables::StepUndo* undo =
          cohort::internal::variables::StepUndo::current();
      undo != nullptr) {
    undo->keep(total);
    undo->keep(examples);
  }
  total.add_(detached_loss, weight);
  examples.add_(static_cast<double>(count));
}

Tensor LossTracker::result() const { return total_.value() / count_.value().clamp_min(1); }

bool LossTracker::is_finite() const {
  cohort::internal::variables::VariableImpl& total = total_.impl();
  for (int r = 0; r < total.leaf_count(); ++r) {
    const Tensor& sum = total.leaf_of(r).tensor;
    if (!std::isfinite(sum.is_cpu() ? *sum.const_data_ptr<double>() : sum.item<double>())) {
      return false;
    }
  }
  return true;
}

bool LossTracker::is_on_host() const { return total_.impl().leaf_of(0).tensor.is_cpu(); }

void LossTracker::reset() const {
  const Tensor zero = scalar(0, kFloat64);
  total_.assign(zero);
  count_.assign(zero);
}

namespace {
// Of a model with one output; lists and names of one are it.
keras::Loss loss_of_one(const keras::CompileOptions& options) {
  const std::vector<keras::Loss>& losses = options.loss.losses();
  return losses.size() == 1 ? losses[0] : keras::Loss();
}

double weight_of_one(const keras::CompileOptions& options) {
  return options.loss_weights.size() == 1 ? options.loss_weights.begin()->second : 1;
}
}  // namespace

CompiledModel::CompiledModel(keras::CompileOptions compile_options, const Strategy& strategy,
                             const std::vector<std::string>& output_names)
    : options(std::move(compile_options)),
      one_loss(output_names.size() > 1 ? keras::Loss() : loss_of_one(options)),
      one_weight(weight_of_one(options)),
      steps(static_cast<std::size_t>(strategy.extended().num_local_replicas())),
      capture(StepCapture::make(strategy, options)),
      strategy_(strategy) {
  COHORT_CHECK_ARG(options.steps_per_execution > 0,
                   "[compile] expected steps_per_execution > 0, got ", options.steps_per_execution);
  COHORT_CHECK_ARG(static_cast<bool>(options.optimizer),
                   "[compile] expected an optimizer, got an empty one; give its name, as in "
                   "{.optimizer = \"adam\"}, or leave it out for Keras's default, rmsprop");
  if (output_names.size() > 1) {
    set_outputs(output_names);
    return;
  }
  if (output_names.size() == 1) {
    options.loss.check_names(output_names);
    options.metrics.check_names(output_names);
    options.weighted_metrics.check_names(output_names);
    check_weights(output_names);
  }
  const std::string name = output_names.empty() ? "" : output_names[0];
  metrics = options.metrics.of(0, 1, name);
  weighted_metrics = options.weighted_metrics.of(0, 1, name);
  list_metrics();
}

void CompiledModel::set_outputs(const std::vector<std::string>& names) {
  options.loss.check_names(names);
  options.metrics.check_names(names);
  options.weighted_metrics.check_names(names);
  check_weights(names);
  metrics.clear();
  weighted_metrics.clear();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto weight = options.loss_weights.find(names[i]);
    outputs.push_back({.name = names[i],
                       .loss = options.loss.of(i, names.size(), names[i]),
                       .weight = weight == options.loss_weights.end() ? 1.0 : weight->second,
                       .metrics = options.metrics.of(i, names.size(), names[i]),
                       .weighted_metrics = options.weighted_metrics.of(i, names.size(), names[i])});
    if (outputs.back().loss) outputs.back().tracker.emplace();
  }
  list_metrics();
}

void CompiledModel::check_weights(const std::vector<std::string>& names) const {
  for (const auto& [name, weight] : options.loss_weights) {
    COHORT_CHECK_ARG(std::ranges::count(names, name) > 0,
                     "[compile] expected loss_weights of the outputs ", join(names, ", "),
                     ", got \"", name, "\"");
  }
}

// A name that another metric has already is numbered, of a weighted one told apart: as Keras does.
std::string CompiledModel::unique_name(Names& taken, const std::string& output,
                                       const std::string& metric, bool is_weighted) {
  std::string name = output + metric;
  COHORT_CHECK_ARG(!taken.of_losses.contains(name), "[compile] expected metrics of other names ",
                   "than the losses have, got a metric \"", name, "\"");
  if (is_weighted && taken.of_all.contains(name)) name = output + "weighted_" + metric;
  std::string free = name;
  for (int n = 1; !taken.of_all.insert(free).second; ++n) free = str_cat(name, "_", n);
  return free;
}

bool CompiledModel::list_of(keras::Logs& all, Names& taken, const std::string& output,
                            const std::vector<keras::Metric>& list, bool is_weighted) const {
  bool resolved = true;
  for (const keras::Metric& metric : list) {
    const std::string name = unique_name(taken, output, metric.name(), is_weighted);
    if (metric.needs_resolving()) resolved = false;
    if (metric.is_name()) continue;
    check_made_under(strategy_, metric);
    all.set(name, [metric] { return metric.result(); });
  }
  return resolved;
}

void CompiledModel::list_metrics() {
  keras::Logs all;
  Names taken{.of_losses = {"loss"}, .of_all = {}};
  all.set("loss", [loss = loss] { return loss.result(); });
  for (const CompiledOutput& output : outputs) {
    if (!output.tracker) continue;
    taken.of_losses.insert(output.name + "_loss");
    all.set(output.name + "_loss", [loss = *output.tracker] { return loss.result(); });
  }
  taken.of_all = taken.of_losses;
  bool resolved = list_of(all, taken, "", metrics, false);
  for (const CompiledOutput& output : outputs) {
    resolved = list_of(all, taken, output.name + "_", output.metrics, false) && resolved;
  }
  resolved = list_of(all, taken, "", weighted_metrics, true) && resolved;
  for (const CompiledOutput& output : outputs) {
    resolved = list_of(all, taken, output.name + "_", output.weighted_metrics, true) && resolved;
  }
  live = all.sorted();
  resolved_.store(resolved, std::memory_order_release);
}

void CompiledModel::resolve_metrics(const std::vector<Shape>& y_true,
                                    const std::vector<Shape>& y_pred) {
  const auto resolve = [&](std::vector<keras::Metric>& list, std::size_t i) {
    for (keras::Metric& metric : list) metric = metric.resolve(y_true[i], y_pred[i]);
  };
  if (outputs.empty()) {
    resolve(metrics, 0);
    resolve(weighted_metrics, 0);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    resolve(outputs[i].metrics, i);
    resolve(outputs[i].weighted_metrics, i);
  }
  resolved_for_ = y_true;
  resolved_for_.insert(resolved_for_.end(), y_pred.begin(), y_pred.end());
  list_metrics();
  if (const auto call = std::exchange(when_resolved, nullptr)) call();
}

bool CompiledModel::resolve_as(const std::vector<Shape>& resolved_for) {
  const std::size_t count = std::max<std::size_t>(outputs.size(), 1);
  if (resolved() || resolved_for.size() != 2 * count) return false;
  const auto middle = resolved_for.begin() + static_cast<int64_t>(count);
  resolve_metrics({resolved_for.begin(), middle}, {middle, resolved_for.end()});
  return true;
}

std::vector<Variable> CompiledModel::metric_variables() const {
  std::vector<Variable> out = loss.variables();
  const auto add = [&out](const std::vector<Variable>& more) {
    out.insert(out.end(), more.begin(), more.end());
  };
  for (const CompiledOutput& output : outputs) {
    if (output.tracker) add(output.tracker->variables());
  }
  for (const keras::Metric& metric : all_metrics()) {
    if (!metric.is_name()) add(metric.variables());
  }
  return out;
}

std::vector<keras::Metric> CompiledModel::all_metrics() const {
  std::vector<keras::Metric> all = metrics;
  all.insert(all.end(), weighted_metrics.begin(), weighted_metrics.end());
  for (const CompiledOutput& output : outputs) {
    all.insert(all.end(), output.metrics.begin(), output.metrics.end());
    all.insert(all.end(), output.weighted_metrics.begin(), output.weighted_metrics.end());
  }
  return all;
}

void CompiledModel::reset_metrics() const {
  reset_compiled_metrics();
  for (const keras::Metric& metric : own_metrics()) metric.reset_state();
}

// Of metrics of the compile() before, the program may have no more use, or use them otherwise.
void CompiledModel::take_updated(const CompiledModel& before) {
  add_metrics(before.own_metrics(), steps.front().updated);
}

std::vector<keras::Metric> CompiledModel::own_metrics() const {
  std::vector<keras::Metric> known = all_metrics();
  std::erase_if(known, [](const keras::Metric& metric) { return metric.is_name(); });
  const auto compiled = static_cast<std::ptrdiff_t>(known.size());
  for (const LoggedStep& step : steps) add_metrics(step.updated, known);
  known.erase(known.begin(), known.begin() + compiled);
  return known;
}

void CompiledModel::reset_compiled_metrics() const {
  loss.reset();
  for (const CompiledOutput& output : outputs) {
    if (output.tracker) output.tracker->reset();
  }
  for (const keras::Metric& metric : all_metrics()) {
    if (!metric.is_name()) metric.reset_state();
  }
}

void CompiledModel::check_scope() const {
  COHORT_CHECK_STATE(
      current_replica() < 0 || current_replica_count() == static_cast<int>(steps.size()),
      "[compute_loss] expected a model made and compiled under the scope of this strategy (",
      current_replica_count(), " replicas), got one for ", steps.size());
}

}  // namespace cohort::keras::internal
