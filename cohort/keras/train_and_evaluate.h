// SPDX-License-Identifier: Apache-2.0
//
// Training on some machines and evaluation on another one, which follows the checkpoints:
//
//   MultiWorkerMirroredStrategy strategy;              // this task is a worker, or the evaluator
//   auto scope = strategy.scope();
//   keras::Sequential model({keras::Dense(10)});
//   model.compile({.optimizer = "adam", .loss = "mse"});
//   keras::train_and_evaluate(model, "run", {train, {.epochs = 10}}, {test});
//
// SidecarEvaluator is the evaluator's half, for checkpoints that a program saves itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/model.h"

namespace cohort::keras {

struct SidecarEvaluatorOptions {
  std::optional<int64_t> steps = {};        ///< As EvaluateOptions::steps.
  std::optional<int> max_evaluations = {};  ///< Unset: until the training says that it has ended.
  std::vector<Callback> callbacks = {};     ///< Of each evaluation.
  Verbose verbose = Verbose::kAuto;
  std::chrono::milliseconds poll_every = std::chrono::seconds(1);
};

/// Evaluates the newest checkpoint in a folder, and then newer ones, each at most once: of those
/// saved during an evaluation only the last. A checkpoint has to keep the model by the
/// name "model", as those of train_and_evaluate and BackupAndRestore do; what else is in it does
/// not matter. An int64 "finished" of 1 says that it is the last one; where the first one that it
/// sees does, it may be an earlier training's, and for 20 `poll_every` a newer one is waited for.
/// TF: tf.keras.experimental.SidecarEvaluator.
class SidecarEvaluator {
 public:
  /// `model` outlives this. Errors: InvalidArgument for an empty folder.
  SidecarEvaluator(Model& model, DataSource data, std::string checkpoint_dir,
                   SidecarEvaluatorOptions options = {});

  /// Blocks: until the last one has been evaluated. Returns what that gave.
  /// Errors: FailedPrecondition for a checkpoint that lacks values of the model; InvalidArgument
  ///         for one of another model; as Model::evaluate.
  ///         One that is damaged, or was removed while it was read, is passed over with a
  ///         warning.
  Logs start();

 private:
  /// Whether `path` was whole. Sets finished_.
  bool restore(const std::string& path);

  Model& model_;
  const DataSource data_;
  const std::string folder_;
  const SidecarEvaluatorOptions options_;
  bool finished_ = false;
};

/// What to train on. TF: tf.estimator.TrainSpec.
struct TrainSpec {
  DataSource data;
  FitOptions options = {};
};
/// What to evaluate on. TF: tf.estimator.EvalSpec.
struct EvalSpec {
  DataSource data;
  SidecarEvaluatorOptions options = {};
};

struct TrainAndEvaluateResult {
  History history = {};  ///< Of the tasks that train.
  Logs evaluation = {};  ///< The last one: of the evaluator, or without one of every task.
};

/// By the role that the strategy's cluster gives this process. The evaluator follows the
/// checkpoints in `model_dir`; all others train together, save one before the first epoch, one
/// after each and one at the end, and go on from the backup when they are started again
/// (BackupAndRestore in model_dir/backup). Where the cluster has no evaluator, they evaluate after
/// each epoch. Errors: as Model::fit and SidecarEvaluator::start. TF:
/// tf.estimator.train_and_evaluate.
TrainAndEvaluateResult train_and_evaluate(Model& model, const std::string& model_dir,
                                          const TrainSpec& train, const EvalSpec& evaluation);

}  // namespace cohort::keras
