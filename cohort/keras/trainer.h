// SPDX-License-Identifier: Apache-2.0
//
// The loops behind Model's fit, evaluate and predict; internal.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/keras/compiled_model.h"
#include "cohort/keras/input_stream.h"
#include "cohort/keras/model.h"

namespace cohort::internal {

/// One call of a model's method. Threads: bound to one thread.
class InterruptGuard;

class Trainer {
 public:
  /// Errors: FailedPrecondition where the model cannot be used, see keras::Model.
  Trainer(keras::Model& model, const char* operation);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  keras::History fit(const keras::DataSource& data, const keras::FitOptions& options);
  keras::Logs evaluate(const keras::DataSource& data, const keras::EvaluateOptions& options);
  Tensor predict(const keras::DataSource& data, const keras::PredictOptions& options);

  enum class Mode { kTrain, kTest };
  /// One step on one global batch, without callbacks.
  keras::Logs step_on(const Element& batch, Mode mode);

 private:
  struct Fit;  // the state of one fit

  void build(const ElementSpec& spec);
  /// The model, built where the data says its shape, with weights that can be trained here.
  void prepare_training(const ElementSpec& spec);
  /// Reads up to steps_per_execution batches into batches_.
  bool read(InputStream& input, int most);
  /// Runs them on all replicas.
  void execute(Mode mode);
  Element with_class_weights(const Element& batch) const;
  /// What the last step's logs say of all replicas.
  keras::Logs step_logs() const;

  bool train_epoch(Fit& fit, int epoch);
  void warn_of_loss(Fit& fit, int epoch, int64_t step) const;
  void end_epoch(Fit& fit, int epoch);
  static void throw_if_interrupted(const Fit& fit);
  /// Ctrl-C ends it: inside fit it returns, else it throws.
  keras::Logs test_all(InputStream& input, const CallbackList& callbacks,
                       const InterruptGuard& guard, bool in_fit);

  keras::Model& model_;
  const char* const operation_;
  const Scope scope_;
  const Strategy& strategy_;
  CompiledModel* compiled_ = nullptr;
  std::vector<PerReplica<Element>> batches_;
  std::vector<int64_t> global_rows_;  // [i] of batches_[i], over all workers
  Tensor class_weights_;
};

}  // namespace cohort::internal
