// SPDX-License-Identifier: Apache-2.0
//
// Trainer on parameter servers: the chief, whose workers make the steps, and a worker that does.
#include <algorithm>
#include <typeinfo>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/coordinator/internal/parameter_server_place.h"
#include "cohort/keras/remote_steps.h"
#include "cohort/keras/serializable.h"
#include "cohort/keras/trainer_fit.h"
#include "cohort/keras/worker_model.h"
#include "cohort/variables/parameter_store.h"

namespace cohort::keras::internal {

using keras::CallbackBase;
using keras::Logs;

void Trainer::check_callbacks(const std::vector<keras::Callback>& callbacks) const {
  if (!cohort::internal::coordinator::leads_workers(strategy_)) return;
  for (const keras::Callback& callback : callbacks) {
    const CallbackBase& base = callback.base();
    COHORT_CHECK_ARG(base.works_without_batches(), "[", operation_,
                     "] batch-level callbacks are not supported with a ParameterServerStrategy, "
                     "whose workers make the steps, several at once, got one (",
                     keras::internal::class_name_of(typeid(base)),
                     ") that wants to be told of each: use hooks of epochs");
  }
}

namespace {

void complete_updates(const Variable& iterations) {
  cohort::internal::variables::store_of("[fit] ", iterations).complete_updates(iterations);
}

}  // namespace

// Workers get the config of a model that is built, so that its weights are there before any step.
// Data that does not say its shape shows a batch.
void Trainer::build_for_workers(const keras::DataSource& data, const ElementSpec& spec) {
  build(spec);
  if (model_.built()) return;
  InputStream first(strategy_, data, {.operation = operation_, .steps = 1});
  first.begin_epoch();
  const auto batch = first.next();
  COHORT_CHECK_ARG(batch.has_value(), "[", operation_, "] expected data, got an empty dataset");
  build((*batch)[0].spec());
  model_.check_weights_made_in_scope(operation_);
}

void Trainer::reach_workers(Mode mode) {
  COHORT_CHECK_ARG(!compiled_->options.run_eagerly, "[", operation_,
                   "] run_eagerly = true is not allowed with a ParameterServerStrategy: workers "
                   "make the steps; compile the model without it");
  const auto weights = model_.trainable_variables();
  const bool trains = mode == Mode::kTrain && !weights.empty();
  if (trains) compiled_->options.optimizer.build(weights);
  remote_ = std::make_unique<RemoteSteps>(model_, *compiled_, class_weights_, trains);
}

bool Trainer::begin_execution(InputStream& input, const InterruptGuard& guard, Mode mode) {
  const int most = compiled_->options.steps_per_execution;
  if (const DatasetRecipe* const recipe = input.elsewhere()) {
    const int64_t steps = input.count(most);
    if (steps > 0) remote_->train_from(*recipe, steps);
    return steps > 0;
  }
  if (!read(input, most, guard, mode)) return false;
  std::vector<std::string> packed;
  for (const PerReplica<Element>& batch : std::exchange(batches_, {})) {
    packed.push_back(packed_batch(batch[0]));
  }
  mode == Mode::kTrain ? remote_->train_on(packed) : remote_->test_on(packed);
  return true;
}

bool Trainer::train_epoch_on_workers(Fit& fit, int epoch) {
  const bool sent = fit.train.elsewhere() == nullptr;
  bool any = fit.position.step > 0;
  bool more = true;
  while (true) {
    const bool stops = fit.guard.requested() || model_.stop_training_;
    while (more && !stops && !fit.position.is_preempted() && remote_->may_begin(sent)) {
      more = begin_execution(fit.train, fit.guard, Mode::kTrain);
    }
    if (remote_->is_idle()) {
      // Nothing is under way: what is saved now is whole. And a schedule's rate shows as it is.
      if (any) complete_updates(compiled_->options.optimizer.iterations());
      if (any) compiled_->options.optimizer.iterations().value();
      if (any) show_position(fit, FitMoment::kStepsEnd);
      if (!more || stops) return any;
      continue;
    }
    const StepsDone done = remote_->take();
    any = true;
    fit.callbacks.call(&CallbackBase::on_train_batch_begin, fit.position.step);
    fit.position.step += done.steps;
    if (!fit.warned && !compiled_->loss.is_finite()) [[unlikely]]
      warn_once_of_loss(fit, epoch, fit.position.step);
    Logs logs = fit.position.logs = step_logs();
    fit.callbacks.call(&CallbackBase::on_train_batch_end, fit.position.step - 1, logs);
  }
}

Logs Trainer::test_on_workers(InputStream& input, const CallbackList& callbacks,
                              const InterruptGuard& guard, bool in_fit) {
  compiled_->reset_metrics();
  input.begin_epoch();
  callbacks.call(&CallbackBase::on_test_begin);
  const DatasetRecipe* const recipe = input.elsewhere();
  const int asked = compiled_->options.pss_evaluation_shards;
  const int64_t shards = asked > 0 ? asked : 5 * remote_->workers();
  int64_t shard = 0;
  const auto begin = [&] {
    if (recipe == nullptr) return begin_execution(input, guard, Mode::kTest);
    if (shard == shards) return false;
    remote_->test_shard(*recipe, input.limit().value_or(-1), shards, shard++);
    return true;
  };
  for (bool more = true;;) {
    while (more && !guard.requested() && remote_->may_begin(/*sent=*/true)) more = begin();
    if (remote_->is_idle()) break;
    const int64_t step = input.steps_taken();
    const StepsDone done = remote_->take();
    if (recipe != nullptr) input.note_taken(done.steps);
    if (done.steps > 0) {
      Logs logs = step_logs();
      callbacks.call(&CallbackBase::on_test_batch_begin, step);
      callbacks.call(&CallbackBase::on_test_batch_end, input.steps_taken() - 1, logs);
    }
    if (!in_fit) guard.check("evaluate");
  }
  COHORT_CHECK_ARG(input.steps_taken() > 0, "[evaluate] expected data, got an empty dataset");
  Logs logs = step_logs().values().sorted();
  callbacks.call(&CallbackBase::on_test_end, logs);
  return logs;
}

void Trainer::begin_steps(Mode mode, const Tensor& class_weights) {
  compiled_ = &model_.checked(operation_);
  // What a step logs of the model's own is sent as it is, and is to be of more than these steps.
  compiled_->reset_compiled_metrics();
  class_weights_ = class_weights;
  mode_ = mode;
  steps_ = 0;
  model_.stop_training_ = false;
}

void Trainer::step_here(PerReplica<Element> batch) {
  global_rows_.assign(1, std::max<int64_t>(batch[0].rows(), 0));
  batches_.clear();
  batches_.push_back(std::move(batch));
  execute(mode_);
  ++steps_;
}

// A log that shows what the metric of its name does is that metric.
StepsDone Trainer::end_steps() {
  StepsDone out{.steps = steps_, .stops = model_.stop_training_ ? 1 : 0};
  if (steps_ == 0) return out;
  for (const Variable& state : compiled_->metric_variables()) {
    out.states.push_back(state.value().detach().clone());
  }
  for (const Shape& shape : compiled_->resolved_for()) {
    out.shapes.emplace_back(shape.begin(), shape.end());
  }
  const Logs logs = step_logs();
  if (logs.same_as(compiled_->live)) return out;
  for (const std::string& name : logs.names()) {
    const Tensor value = logs.value(name);
    out.logged.push_back(name);
    const bool is_metric = logs.is_read_anew(name) && compiled_->live.contains(name) &&
                           value.equal(compiled_->live.value(name));
    if (!is_metric && value.defined()) out.values[name] = value.detach();
  }
  return out;
}

}  // namespace cohort::keras::internal
