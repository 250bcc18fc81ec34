// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/trainer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/worker_collectives.h"
#include "cohort/coordinator/internal/parameter_server_place.h"
#include "cohort/data/pipeline/internal/split_plan.h"
#include "cohort/keras/fit_position.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/interrupt.h"
#include "cohort/keras/metrics/internal/updated_metrics.h"
#include "cohort/keras/progress_logger.h"
#include "cohort/keras/remote_steps.h"
#include "cohort/keras/step_capture.h"
#include "cohort/keras/step_logs.h"
#include "cohort/keras/worker_results.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::keras::internal {

using keras::Logs;

namespace {

// Sample weights with as many axes as the labels, so that [n, 1] and [n] do not become [n, n].
Tensor weight_beside(const Tensor& weight, const Tensor& labels) {
  if (weight.numel() == labels.numel()) return weight.reshape(labels.sizes());
  std::vector<int64_t> shape(static_cast<std::size_t>(labels.dim()), 1);
  shape[0] = labels.size(0);
  COHORT_CHECK_ARG(weight.numel() == labels.size(0),
                   "[fit] expected sample weights for class_weight of shape ",
                   bracketed(labels.sizes()), " or one a row, got ", bracketed(weight.sizes()));
  return weight.reshape(shape);
}

int64_t rows_of(const PerReplica<Element>& batch) {
  int64_t rows = 0;
  for (const Element& part : batch) rows += std::max<int64_t>(part.rows(), 0);
  return rows;
}

cohort::internal::collectives::Communicator* others_of(const Strategy& strategy,
                                                       const char* operation) {
  if (strategy.extended().layout().workers() == 1) return nullptr;
  return strategy.extended().reach(str_cat("[", operation, "] ").c_str()).others;
}
}  // namespace

Trainer::Trainer(keras::Model& model, const char* operation)
    : model_(model),
      operation_(operation),
      scope_(model.enter(operation)),
      strategy_(model.strategy_),
      others_(others_of(strategy_, operation)) {
  ++model_.running_;
}

Trainer::~Trainer() { --model_.running_; }

// Makes the variables before the first step, where the data says its shape; else the first call
// does, inside the replicas.
void Trainer::build(const ElementSpec& spec) {
  if (model_.built() || spec.is_unknown() || spec[0].is_unknown() || !spec[0].is_leaf()) return;
  const TensorSpec& input = spec[0].leaf();
  if (!input.known_rank || input.is_string || input.shape.empty()) return;
  Shape shape = input.shape;
  shape[0] = kUnknownDim;
  model_.ensure_built(shape);
}

void Trainer::prepare_training(const ElementSpec& spec) {
  build(spec);
  model_.check_weights_made_in_scope(operation_);
}

// Of several workers the chief prints.
keras::Verbose Trainer::verbose_here(keras::Verbose asked) const {
  const bool prints = strategy_.extended().should_save_summary();
  if (cohort::internal::coordinator::leads_workers(strategy_)) {
    COHORT_CHECK_ARG(asked != keras::Verbose::kBar, "[", operation_,
                     "] verbose = kBar is not allowed with a ParameterServerStrategy for "
                     "performance reasons: workers make the steps, several at once; kLine, and "
                     "kAuto, print a line for each epoch");
    if (asked == keras::Verbose::kAuto) return keras::Verbose::kLine;
  }
  return prints ? resolve_verbose(asked) : keras::Verbose::kSilent;
}

namespace {

// Where all of `count` numbers are one, the sum of their squares is its square as often.
bool are_one(int64_t sum, int64_t squares, int count) {
  const auto all = static_cast<uint64_t>(sum);
  return static_cast<uint64_t>(squares) * static_cast<uint64_t>(count) == all * all;
}

}  // namespace

// Numbers of unlike places are unlike.
int64_t Trainer::number_of(Telling at, int64_t step) const {
  const int64_t epoch = position_ == nullptr ? 0 : position_->epoch + 1;
  return (epoch & 0x3ff) << 16 | (step & 0x1fff) << 3 | static_cast<int64_t>(at);
}

void Trainer::check_same_place(Telling at, int64_t step) const {
  const int64_t epoch = position_ == nullptr ? 0 : position_->epoch + 1;
  std::string place;
  switch (at) {
    case Telling::kStep:
      place = str_cat("step ", step, " of epoch ", epoch);
      break;
    case Telling::kTestStep:
      place = str_cat("step ", step, " of ");
      place += epoch == 0 ? "an evaluation" : str_cat("the validation of epoch ", epoch);
      break;
    case Telling::kStepsEnd:
      place = str_cat("the last step of epoch ", epoch);
      break;
    case Telling::kValidated:
      place = str_cat("the end of the validation of epoch ", epoch);
      break;
    case Telling::kEpochEnd:
      place = str_cat("the end of epoch ", epoch);
      break;
    case Telling::kFitEnd:
      place = "the end of fit";
      break;
  }
  cohort::internal::collectives::check_same_on_workers(
      *others_, str_cat("[", operation_, "] ").c_str(),
      "place in training (each has to give as many epochs and steps, the same validation, and data "
      "of the same size)",
      place);
  throw Internal(str_cat("[", operation_, "] this worker is at ", place,
                         ", some other is elsewhere in training"));
}

// Who is elsewhere sends as many numbers.
Trainer::News Trainer::tell(News here, Telling at, int64_t step) const {
  if (others_ == nullptr) return here;
  const int64_t place = number_of(at, step);
  std::array<int64_t, 7> numbers = {here.rows,      here.stops, here.interrupts, here.bad_losses,
                                    here.preempted, place,      place * place};
  others_->take_turn(operation_, [&] {
    others_->all_reduce(cohort::internal::collectives::bytes_of(numbers), kInt64);
  });
  if (!are_one(numbers[5], numbers[6], others_->size())) [[unlikely]]
    check_same_place(at, step);
  return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
}

void Trainer::check_rows(const Element& batch) const {
  const int64_t rows = batch.rows();
  COHORT_CHECK_ARG(rows > 0, "[", operation_, "] expected a batch of at least 1 row, got ",
                   batch.spec().to_string());
  if (others_ == nullptr) return;
  std::array<int64_t, 2> numbers = {rows, rows * rows};
  others_->take_turn(operation_, [&] {
    others_->all_reduce(cohort::internal::collectives::bytes_of(numbers), kInt64);
  });
  if (are_one(numbers[0], numbers[1], others_->size())) [[likely]]
    return;
  cohort::internal::collectives::check_same_on_workers(
      *others_, str_cat("[", operation_, "] ").c_str(),
      "batch (each is given all of its rows, and takes its part)", str_cat(rows, " rows"));
}

Trainer::News Trainer::news_here(const InterruptGuard& guard, bool between_steps) const {
  const bool interrupted = guard.requested();
  const bool looks = compiled_ != nullptr && (!between_steps || compiled_->loss.is_on_host());
  return {.stops = interrupted || model_.stop_training_ ? 1 : 0,
          .interrupts = interrupted ? 1 : 0,
          .bad_losses = looks && !compiled_->loss.is_finite() ? 1 : 0,
          .preempted = position_ != nullptr && position_->is_preempted() ? 1 : 0};
}

void Trainer::guarded(cohort::internal::base::FunctionRef<void()> body) {
  others_ == nullptr ? body() : others_->guard(operation_, body);
}

bool Trainer::read(InputStream& input, int most, const InterruptGuard& guard, Mode mode) {
  batches_.clear();
  global_rows_.clear();
  while (static_cast<int>(batches_.size()) < most) {
    std::optional<PerReplica<Element>> batch = input.next();
    if (!batch) break;
    batches_.push_back(std::move(*batch));
    int64_t rows = rows_of(batches_.back());
    if (others_ != nullptr) {
      news_ = news_here(guard, /*between_steps=*/true);
      news_.rows = rows;
      news_ = tell(news_, mode == Mode::kTrain ? Telling::kStep : Telling::kTestStep,
                   input.steps_taken());
      rows = news_.rows;
      preempted_ = preempted_ || news_.preempted > 0;
      const bool ends = (mode == Mode::kTrain ? news_.stops : news_.interrupts) > 0;
      if (ends) batches_.clear();
      if (ends) break;
    }
    global_rows_.push_back(rows);
  }
  return !batches_.empty();
}

Element Trainer::with_class_weights(const Element& batch) const {
  COHORT_CHECK_ARG(batch.is_tuple() && batch.size() > 1,
                   "[fit] class_weight needs labels, got elements ", batch.spec().to_string());
  const Element& x = batch[0];
  COHORT_CHECK_ARG(
      batch[1].is_tensor(),
      "[fit] class_weight needs a model with one output, got labels of several parts: ",
      batch[1].spec().to_string(), "; give sample weights instead");
  const Tensor& y = batch[1].tensor();
  const Tensor weight = batch.size() > 2 ? batch[2].tensor() : Tensor();
  Tensor labels = y;
  if (y.dim() > 1) labels = y.size(-1) > 1 ? y.argmax(-1) : y.squeeze(-1);
  // The last weight, of 1, is that of all that is not in the table.
  const int64_t others = class_weights_.size(0) - 1;
  const Tensor table =
      y.is_cpu() ? class_weights_ : class_weights_there_.on(y, [&] { return class_weights_; });
  const Tensor rounded = at::isFloatingType(labels.scalar_type()) ? labels.round() : labels;
  Tensor known = rounded.to(kInt64).clamp_max(others);
  known = known.masked_fill(known.lt(0), others);
  const Tensor of_class = table.index_select(0, known.reshape({-1})).reshape(known.sizes());
  if (!weight.defined()) return Element::tuple({x, y, of_class});
  return Element::tuple({x, y, weight_beside(weight, of_class) * of_class});
}

void Trainer::execute(Mode mode) {
  StepCapture* const capture = compiled_->capture->is_off() ? nullptr : compiled_->capture.get();
  strategy_.run([&] {
    const auto replica = static_cast<std::size_t>(std::max(0, current_replica()));
    LoggedStep& step = compiled_->steps[replica];
    const RunningStep running(step);
    const UpdatedMetrics listed(step.updated);
    for (std::size_t i = 0; i < batches_.size(); ++i) {
      const Element& part = batches_[i][replica];
      step.global_rows = global_rows_[i];
      step.rows = part.rows();
      step.shares.clear();
      if (mode == Mode::kTest) {
        step.logs = model_.test_step(part);
        continue;
      }
      const Element weighted = class_weights_.defined() ? with_class_weights(part) : part;
      step.logs = capture != nullptr ? capture->step(model_, *compiled_, step, weighted)
                                     : model_.train_step(weighted);
    }
    keras::internal::forget_added_losses();
    if (!step.logs.same_as(compiled_->live)) settle(step);
  });
  model_.set_called();
}

Logs Trainer::step_logs() const {
  if (remote_ != nullptr) return remote_->logs();
  const std::vector<LoggedStep>& steps = compiled_->steps;
  const bool ours = std::all_of(steps.begin(), steps.end(), [&](const LoggedStep& step) {
    return step.logs.same_as(compiled_->live);
  });
  if (ours) return compiled_->live;
  if (others_ == nullptr) return over_replicas(operation_, steps);
  return over_replicas(operation_, steps_of_all(*others_, steps));
}

Logs Trainer::test_all(InputStream& input, const CallbackList& callbacks,
                       const InterruptGuard& guard, bool in_fit) {
  if (remote_ != nullptr) return test_on_workers(input, callbacks, guard, in_fit);
  compiled_->reset_metrics();
  input.begin_epoch();
  callbacks.call(&keras::CallbackBase::on_test_begin);
  const int most = compiled_->options.steps_per_execution;
  for (int64_t step = 0; read(input, most, guard, Mode::kTest);) {
    callbacks.call(&keras::CallbackBase::on_test_batch_begin, step);
    cohort::internal::base::failpoint("evaluate.step");
    execute(Mode::kTest);
    step += static_cast<int64_t>(batches_.size());
    Logs logs = step_logs();
    callbacks.call(&keras::CallbackBase::on_test_batch_end, step - 1, logs);
    if (!in_fit) guard.check("evaluate");
    if (others_ == nullptr && guard.requested()) break;
  }
  batches_.clear();
  COHORT_CHECK_ARG(input.steps_taken() > 0, "[", in_fit ? "fit, validation" : "evaluate",
                   "] expected data, got an empty dataset");
  Logs logs = step_logs().values().sorted();
  callbacks.call(&keras::CallbackBase::on_test_end, logs);
  return logs;
}

Logs Trainer::evaluate(const keras::DataSource& data, const keras::EvaluateOptions& options) {
  Logs logs;
  guarded([&] { logs = evaluate_guarded(data, options); });
  return logs;
}

Logs Trainer::evaluate_guarded(const keras::DataSource& data,
                               const keras::EvaluateOptions& options) {
  compiled_ = &model_.checked(operation_);
  const bool remote = cohort::internal::coordinator::leads_workers(strategy_);
  InputStream input(strategy_, data,
                    {.operation = "evaluate",
                     .steps = options.steps,
                     .steps_per_execution = compiled_->options.steps_per_execution,
                     .restart = true,
                     .elsewhere = remote});
  check_callbacks(options.callbacks);
  build(input.element_spec());
  if (remote) build_for_workers(data, input.element_spec());
  if (remote) reach_workers(Mode::kTest);
  const auto progress = std::make_shared<ProgressLogger>(
      input, ProgressLogger::Options{.task = ProgressLogger::Task::kEvaluate,
                                     .verbose = verbose_here(options.verbose),
                                     .values_between = others_ == nullptr});
  const CallbackList callbacks = with_progress(options.callbacks, model_, progress);
  const InterruptGuard guard(InterruptGuard::Of::kOther);
  const FailureWatch watch(callbacks);
  const OpenLine line(*progress);
  Logs logs = test_all(input, callbacks, guard, false);
  guard.check("evaluate");  // in the callbacks of its end
  return logs;
}

Logs Trainer::step_on(const Element& batch, Mode mode) {
  Logs logs;
  guarded([&] { logs = step_on_guarded(batch, mode); });
  return logs;
}

PerReplica<Element> Trainer::parts_of(const Element& batch) const {
  const ReplicaLayout layout = strategy_.extended().layout();
  std::vector<Element> parts;
  int64_t begin = 0;
  int replica = 0;
  for (const int64_t count :
       cohort::internal::data::even_sizes(batch.rows(), static_cast<std::size_t>(layout.total()))) {
    const int local = replica++ - layout.first();
    if (local >= 0 && local < layout.local()) parts.push_back(batch.slice(begin, count));
    begin += count;
  }
  return PerReplica<Element>(std::move(parts));
}

Logs Trainer::step_on_guarded(const Element& batch, Mode mode) {
  compiled_ = &model_.checked(operation_);
  check_rows(batch);
  if (mode == Mode::kTrain) {
    prepare_training(batch.spec());
  } else {
    build(batch.spec());
  }
  batches_.assign(1, parts_of(batch));
  global_rows_.assign(1, batch.rows());
  compiled_->reset_metrics();
  execute(mode);
  return step_logs().values();
}

}  // namespace cohort::keras::internal
