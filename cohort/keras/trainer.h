// SPDX-License-Identifier: Apache-2.0
//
// The loops behind Model's fit, evaluate and predict; internal.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/keras/compiled_model.h"
#include "cohort/keras/input_stream.h"
#include "cohort/keras/internal/device_constant.h"
#include "cohort/keras/model.h"
#include "cohort/keras/steps_done.h"

namespace cohort::keras::internal {

class FitPosition;
enum class FitMoment;
class InterruptGuard;
class RemoteSteps;

/// One call of a model's method. Threads: bound to one thread.
class Trainer {
 public:
  /// Errors: FailedPrecondition where the model cannot be used, see keras::Model.
  Trainer(keras::Model& model, const char* operation);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  keras::History fit(const keras::DataSource& data, const keras::FitOptions& options);
  keras::Logs evaluate(const keras::DataSource& data, const keras::EvaluateOptions& options);
  /// `nest`: by predict_nest_step, else by predict_step.
  Element predict(const keras::DataSource& data, const keras::PredictOptions& options, bool nest);

  /// The same of one global batch, without callbacks.
  Element predict_on(const Element& batch, bool nest);

  enum class Mode { kTrain, kTest };
  /// One step on one global batch, without callbacks.
  keras::Logs step_on(const Element& batch, Mode mode);

  /// On a worker of a strategy with parameter servers, for the chief's fit or evaluate: an
  /// execution of steps whose metrics begin with nothing.
  void begin_steps(Mode mode, const Tensor& class_weights);
  void step_here(PerReplica<Element> batch);
  StepsDone end_steps();

 private:
  struct Fit;  // the state of one fit

  void build(const ElementSpec& spec);
  /// The model, built where the data says its shape, with weights that can be trained here.
  void prepare_training(const ElementSpec& spec);
  keras::Verbose verbose_here(keras::Verbose asked) const;
  /// What workers tell each other ahead of each step and at each end; of one worker its own.
  struct News {
    int64_t rows = 0;        ///< Of the batch.
    int64_t stops = 0;       ///< Somebody wants to end: Ctrl-C, stop_training().
    int64_t interrupts = 0;  ///< Ctrl-C.
    int64_t bad_losses = 0;  ///< That are no numbers.
    int64_t preempted = 0;   ///< Of those who are watched, see FitPosition.
  };
  /// Where they do. kStep, kTestStep: ahead of one; kStepsEnd, kEpochEnd: before and behind the
  /// validation of an epoch.
  enum class Telling { kStep = 1, kTestStep, kStepsEnd, kValidated, kEpochEnd, kFitEnd };
  /// The sum of all workers'. `step`: its number in the epoch.
  /// Errors: FailedPrecondition that names two workers that are at unlike places.
  News tell(News here, Telling at, int64_t step = 0) const;
  int64_t number_of(Telling at, int64_t step) const;
  void check_same_place(Telling at, int64_t step) const;
  /// Of a batch that all workers are given. Errors: InvalidArgument for none; FailedPrecondition
  ///         that names two workers whose batches differ.
  void check_rows(const Element& batch) const;
  /// Between the steps of an epoch the losses of devices are not looked at: that would wait for
  /// them.
  News news_here(const InterruptGuard& guard, bool between_steps = false) const;
  /// Calls body; with several workers, what it throws they all throw.
  void guarded(cohort::internal::base::FunctionRef<void()> body);

  /// Reads up to steps_per_execution batches into batches_. False at the data's end, and with
  /// several workers if one of them wants to end: see news_.
  bool read(InputStream& input, int most, const InterruptGuard& guard, Mode mode);
  /// Runs them on all replicas.
  void execute(Mode mode);
  Element with_class_weights(const Element& batch) const;
  /// What the last step's logs say of all replicas.
  keras::Logs step_logs() const;

  keras::History fit_guarded(const keras::DataSource& data, const keras::FitOptions& options);
  keras::Logs evaluate_guarded(const keras::DataSource& data,
                               const keras::EvaluateOptions& options);
  Element predict_guarded(const keras::DataSource& data, const keras::PredictOptions& options,
                          bool nest);
  /// Of each replica here its own.
  std::vector<Element> outputs_of(const PerReplica<Element>& batch, bool nest);
  keras::Logs step_on_guarded(const Element& batch, Mode mode);
  /// What this worker's replicas have of a batch that all workers are given.
  PerReplica<Element> parts_of(const Element& batch) const;

  /// Of the chief of parameter servers, whose workers make the steps. Of others: nothing.
  /// Errors: InvalidArgument for callbacks that need steps here.
  void check_callbacks(const std::vector<keras::Callback>& callbacks) const;
  void build_for_workers(const keras::DataSource& data, const ElementSpec& spec);
  void reach_workers(Mode mode);
  /// False where there are no more.
  bool begin_execution(InputStream& input, const InterruptGuard& guard, Mode mode);
  bool train_epoch_on_workers(Fit& fit, int epoch);
  keras::Logs test_on_workers(InputStream& input, const CallbackList& callbacks,
                              const InterruptGuard& guard, bool in_fit);

  /// Shows callbacks where fit is, and then, if a worker is to end, that it is.
  void show_position(Fit& fit, FitMoment moment);
  void show_end(Fit& fit);
  bool run_epoch(Fit& fit, int epoch);
  bool train_epoch(Fit& fit, int epoch);
  void warn_once_of_loss(Fit& fit, int epoch, int64_t step) const;
  keras::Logs validated(Fit& fit);
  void end_epoch(Fit& fit, int epoch);
  static void throw_if_interrupted(const Fit& fit);
  /// Ctrl-C ends it: inside fit it returns, else it throws.
  keras::Logs test_all(InputStream& input, const CallbackList& callbacks,
                       const InterruptGuard& guard, bool in_fit);

  keras::Model& model_;
  const char* const operation_;
  const Scope scope_;
  const Strategy& strategy_;
  cohort::internal::collectives::Communicator* const others_;  // null: there is one worker
  CompiledModel* compiled_ = nullptr;
  std::vector<PerReplica<Element>> batches_;
  std::vector<int64_t> global_rows_;       // [i] of batches_[i], over all workers
  News news_;                              // of all workers, when they last told
  const FitPosition* position_ = nullptr;  // of fit
  bool preempted_ = false;                 // a worker is
  Tensor class_weights_;
  mutable DeviceConstant class_weights_there_;
  std::unique_ptr<RemoteSteps> remote_;  // of the chief of parameter servers; null: steps run here
  Mode mode_ = Mode::kTrain;             // of an execution on a worker
  int64_t steps_ = 0;                    // the same
};

}  // namespace cohort::keras::internal
