// SPDX-License-Identifier: Apache-2.0
//
// Trainer's fit: epochs, steps, and where it is.
#include "cohort/keras/trainer_fit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/logging.h"
#include "cohort/base/scope_exit.h"
#include "cohort/collectives/worker_collectives.h"
#include "cohort/coordinator/internal/parameter_server_place.h"
#include "cohort/keras/fit_position.h"
#include "cohort/keras/interrupt.h"
#include "cohort/keras/progress_logger.h"
#include "cohort/keras/remote_steps.h"

namespace cohort::keras::internal {

using keras::Logs;

namespace {

class HistoryRecorder : public keras::CallbackBase {
 public:
  void on_epoch_end(int epoch, Logs& logs) override {
    history.epoch.push_back(epoch);
    for (std::size_t i = 0; i < logs.size(); ++i) {
      history.history.try_emplace(logs.name(i)).first->second.push_back(logs.number(i));
    }
  }
  keras::History history;
};

void check_options(const keras::FitOptions& options) {
  COHORT_CHECK_ARG(options.initial_epoch >= 0 && options.epochs >= options.initial_epoch,
                   "[fit] expected 0 <= initial_epoch <= epochs, got ", options.initial_epoch,
                   " and ", options.epochs);
  COHORT_CHECK_ARG(!options.validation_steps || options.validation_data,
                   "[fit] validation_steps needs validation_data");
}

InputStreamOptions trained_input(const keras::FitOptions& options, int k, bool remote) {
  return {.operation = "fit",
          .steps = options.steps_per_epoch,
          .steps_per_execution = k,
          .creator_needs_steps = true,
          .elsewhere = remote};
}

InputStreamOptions validation_input(const keras::FitOptions& options, int k, bool remote) {
  return {.operation = "fit, validation",
          .steps = options.validation_steps,
          .steps_per_execution = k,
          .restart = true,
          .elsewhere = remote};
}

// What workers have to be told alike.
std::string text_of(const keras::FitOptions& options, int epochs) {
  const std::string steps =
      options.steps_per_epoch ? str_cat(*options.steps_per_epoch, " steps") : "all data";
  const std::string validation =
      options.validation_data
          ? str_cat("validated after epochs: ", options.validation_freq.to_string())
          : "without validation";
  return str_cat("epochs ", options.initial_epoch + 1, " to ", epochs, ", of ", steps, " each, ",
                 validation);
}

int last_epoch(const keras::FitOptions& options) {
  const auto most = positive_from_environment("KERAS_MAX_EPOCHS");
  return most ? static_cast<int>(std::min<int64_t>(options.epochs, *most)) : options.epochs;
}

Tensor class_weight_table(const std::map<int64_t, double>& weights) {
  if (weights.empty()) return {};
  COHORT_CHECK_ARG(weights.begin()->first >= 0, "[fit] expected classes >= 0 in class_weight, got ",
                   weights.begin()->first);
  constexpr int64_t kMostClasses = int64_t{1} << 24;
  const int64_t last = weights.rbegin()->first;
  COHORT_CHECK_ARG(last < kMostClasses, "[fit] expected classes < ", kMostClasses,
                   " in class_weight, got ", last);
  std::vector<float> table(static_cast<std::size_t>(last) + 2, 1.0F);  // the last: all others
  for (const auto& [label, weight] : weights) {
    COHORT_CHECK_ARG(std::isfinite(weight), "[fit] expected finite weights in class_weight, got ",
                     weight, " for class ", label);
    table[static_cast<std::size_t>(label)] = static_cast<float>(weight);
  }
  return from_vector(table, {last + 2});
}

}  // namespace

keras::History Trainer::fit(const keras::DataSource& data, const keras::FitOptions& options) {
  keras::History history;
  guarded([&] { history = fit_guarded(data, options); });
  return history;
}

keras::History Trainer::fit_guarded(const keras::DataSource& data,
                                    const keras::FitOptions& options) {
  compiled_ = &model_.checked(operation_);
  check_options(options);
  class_weights_ = class_weight_table(options.class_weight);
  const int epochs = last_epoch(options);
  if (others_ != nullptr) {
    cohort::internal::collectives::check_same_on_workers(*others_, "[fit] ", "options",
                                                         text_of(options, epochs));
  }
  const int k = compiled_->options.steps_per_execution;
  const bool remote = cohort::internal::coordinator::leads_workers(strategy_);
  InputStream train(strategy_, data, trained_input(options, k, remote));
  std::optional<InputStream> validation;
  if (const keras::DataSource* const batches = options.validation_data.batches()) {
    validation.emplace(strategy_, *batches, validation_input(options, k, remote));
  }
  check_callbacks(options.callbacks);
  prepare_training(train.element_spec());
  if (remote) build_for_workers(data, train.element_spec());
  model_.stop_training_ = false;

  InputStream* const validated = validation ? &*validation : nullptr;
  Fit fit{.train = train,
          .validation = validated,
          .options = options,
          .position = FitPosition({model_, *compiled_, train, validated, options.callbacks})};
  fit.position.epoch = options.initial_epoch;
  position_ = &fit.position;
  const cohort::internal::base::ScopeExit gone([this] { position_ = nullptr; });
  const auto history = std::make_shared<HistoryRecorder>();
  const keras::Verbose verbose = verbose_here(options.verbose);
  history->history.params = {.verbose = verbose, .epochs = epochs, .steps = train.steps()};
  const auto progress = std::make_shared<ProgressLogger>(
      train, ProgressLogger::Options{
                 .verbose = verbose, .epochs = epochs, .values_between = others_ == nullptr});
  fit.progress = progress.get();
  fit.callbacks = with_progress(options.callbacks, model_, progress, history);

  const FailureWatch watch(fit.callbacks);
  const OpenLine line(*progress);
  fit.callbacks.call(&keras::CallbackBase::on_train_begin);
  if (remote) reach_workers(Mode::kTrain);
  const cohort::internal::base::ScopeExit rest([this] { remote_.reset(); });
  show_position(fit, FitMoment::kBegin);
  while (fit.position.epoch < epochs && !fit.position.is_over) {
    if (!run_epoch(fit, fit.position.epoch)) break;
  }
  fit.interrupted = news_.interrupts > 0;
  progress->close();
  throw_if_interrupted(fit);
  compiled_->options.optimizer.finalize_variable_values();
  fit.callbacks.call(&keras::CallbackBase::on_train_end);
  show_end(fit);
  throw_if_interrupted(fit);  // meanwhile
  history->history.interrupted = fit.interrupted || fit.guard.requested();
  if (history->history.interrupted)
    COHORT_LOG(kWarning, "[fit] interrupted; the weights are those so far");
  return history->history;
}

// False at the end of the data, and where somebody has interrupted it.
bool Trainer::run_epoch(Fit& fit, int epoch) {
  if (!fit.position.has_begun) {
    compiled_->reset_metrics();
    fit.train.begin_epoch();
    fit.position.step = 0;
    fit.position.logs = {};
    fit.position.has_begun = true;
  }
  fit.callbacks.call(&keras::CallbackBase::on_epoch_begin, epoch);
  const bool any = train_epoch(fit, epoch);
  news_ = tell(news_here(fit.guard), Telling::kStepsEnd);
  if (!any) {
    const bool was_whole = fit.train.ran_out() && epoch > fit.options.initial_epoch;
    COHORT_CHECK_ARG(news_.stops > 0 || was_whole, "[fit] expected data, got an empty dataset");
    return false;
  }
  if (news_.bad_losses > 0) warn_once_of_loss(fit, epoch, fit.position.step);
  if (news_.interrupts == 0) end_epoch(fit, epoch);
  news_ = tell(news_here(fit.guard), Telling::kEpochEnd);
  if (news_.interrupts > 0) return false;
  preempted_ = preempted_ || news_.preempted > 0;
  fit.position.is_over = news_.stops > 0;
  ++fit.position.epoch;
  fit.position.has_begun = false;
  fit.position.step = 0;
  show_position(fit, FitMoment::kEpochEnd);
  return true;
}

void Trainer::show_position(Fit& fit, FitMoment moment) {
  const auto show = [&](FitMoment now) {
    fit.callbacks.call(&keras::CallbackBase::on_fit_position, fit.position, now);
  };
  show(moment);
  const bool may_end = moment == FitMoment::kStepsEnd || moment == FitMoment::kEpochEnd;
  if (others_ == nullptr) preempted_ = fit.position.is_preempted();
  if (may_end && std::exchange(preempted_, false)) [[unlikely]]
    show(FitMoment::kPreempted);
}

// SIGTERM behind the last step: nothing is left to be done, but the fit after the next start has to
// know that.
void Trainer::show_end(Fit& fit) {
  preempted_ = fit.position.is_preempted();
  if (others_ != nullptr) preempted_ = tell(news_here(fit.guard), Telling::kFitEnd).preempted > 0;
  if (std::exchange(preempted_, false)) [[unlikely]]
    show_position(fit, FitMoment::kPreempted);
  show_position(fit, FitMoment::kEnd);
}

void Trainer::throw_if_interrupted(const Fit& fit) {
  const bool interrupted = fit.interrupted || fit.guard.requested();
  if (!interrupted || fit.options.on_interrupt == keras::OnInterrupt::kReturn) return;
  throw keras::Interrupted(
      "[fit] interrupted by Ctrl-C; the weights are those of the last whole step (with "
      ".on_interrupt = keras::OnInterrupt::kReturn fit returns instead)");
}

// False if there was no step.
bool Trainer::train_epoch(Fit& fit, int epoch) {
  if (remote_ != nullptr) return train_epoch_on_workers(fit, epoch);
  const int most = compiled_->options.steps_per_execution;
  int64_t step = fit.position.step;  // more than none where it goes on
  bool any = step > 0;
  while (read(fit.train, most, fit.guard, Mode::kTrain)) {
    any = true;
    if (news_.bad_losses > 0) [[unlikely]]
      warn_once_of_loss(fit, epoch, step);
    fit.callbacks.call(&keras::CallbackBase::on_train_batch_begin, step);
    execute(Mode::kTrain);
    step += static_cast<int64_t>(batches_.size());
    fit.position.step = step;
    const bool looks = others_ == nullptr && !fit.warned && compiled_->loss.is_on_host();
    if (looks && !compiled_->loss.is_finite()) [[unlikely]]
      warn_once_of_loss(fit, epoch, step);
    Logs logs = fit.position.logs = step_logs();
    fit.callbacks.call(&keras::CallbackBase::on_train_batch_end, step - 1, logs);
    show_position(fit, FitMoment::kStepsEnd);
    // Several workers end where they next tell each other.
    if (others_ == nullptr && (fit.guard.requested() || model_.stop_training_)) break;
  }
  batches_.clear();
  return any;
}

// Of several workers all come here, at the same step.
void Trainer::warn_once_of_loss(Fit& fit, int epoch, int64_t step) const {
  if (std::exchange(fit.warned, true)) return;
  fit.progress->make_room();
  COHORT_LOG(kWarning, "[fit] the loss became ", compiled_->loss.result().item<double>(),
             " in epoch ", epoch + 1, ", batch ", step, ", and so may the weights: ",
             "look for a learning rate that is too high and for NaN in the data, ",
             "or end fit there with keras::TerminateOnNaN()");
}

// Who reads that data do not fit has trained for an epoch on such that do.
Logs Trainer::validated(Fit& fit) {
  try {
    return test_all(*fit.validation, fit.callbacks, fit.guard, true);
  } catch (const InvalidArgument& error) {
    if (typeid(error) != typeid(InvalidArgument)) throw;
    throw InvalidArgument(str_cat(error.what(), " (while fit validated)"));
  }
}

void Trainer::end_epoch(Fit& fit, int epoch) {
  cohort::internal::base::failpoint("fit.end_of_epoch");
  Logs logs = fit.position.logs.values();
  if (fit.validation != nullptr && fit.options.validation_freq.is_due_after(epoch)) {
    const Logs tested = validated(fit);
    if (tell(news_here(fit.guard), Telling::kValidated).interrupts > 0) return;
    for (const std::string& name : tested.names()) logs.set("val_" + name, tested.value(name));
  }
  logs = logs.sorted();
  fit.callbacks.call(&keras::CallbackBase::on_epoch_end, epoch, logs);
}

}  // namespace cohort::keras::internal
