// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/train_and_evaluate.h"

#include <memory>
#include <thread>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/cluster/cluster_resolver.h"
#include "cohort/keras/callbacks/backup_and_restore.h"

namespace cohort::keras {
namespace {

constexpr const char* kFinished = "finished";
// So often is looked for the checkpoint of a training that begins where another one has ended.
constexpr int kPollsForOldMark = 20;

/// Saves what the evaluator follows.
class FollowedCheckpoints : public CallbackBase {
 public:
  explicit FollowedCheckpoints(std::string folder) : folder_(std::move(folder)) {}

  void on_train_begin() override {
    finished_ = 0;
    has_begun_ = false;
  }
  // What a training before has left in the folder says that it is finished.
  void on_epoch_begin(int /*epoch*/) override {
    if (!std::exchange(has_begun_, true)) save();
  }
  void on_epoch_end(int /*epoch*/, Logs& /*logs*/) override { save(); }
  void on_train_end() override {
    finished_ = 1;
    save();
  }

 private:
  void save() {
    if (!manager_) {
      manager_.emplace(Checkpoint({{"model", model()}, {kFinished, &finished_}}), folder_);
    }
    manager_->save();
  }

  const std::string folder_;
  int64_t finished_ = 0;
  bool has_begun_ = false;
  std::optional<CheckpointManager> manager_;
};

bool has_evaluator(const Strategy& strategy) {
  const auto resolver = strategy.cluster_resolver();
  return resolver != nullptr && resolver->cluster_spec().has_job("evaluator");
}

bool is_evaluator(const Strategy& strategy) {
  const auto resolver = strategy.cluster_resolver();
  return resolver != nullptr && resolver->task_type() == "evaluator";
}

}  // namespace

SidecarEvaluator::SidecarEvaluator(Model& model, DataSource data, std::string checkpoint_dir,
                                   SidecarEvaluatorOptions options)
    : model_(model),
      data_(std::move(data)),
      folder_(std::move(checkpoint_dir)),
      options_(std::move(options)) {
  COHORT_CHECK_ARG(!folder_.empty(),
                   "[sidecar_evaluator] expected a folder of checkpoints, got none");
}

bool SidecarEvaluator::restore(const std::string& path) {
  int64_t finished = 0;
  try {
    Checkpoint({{"model", model_}})
        .restore(path, {.allow_partial = true})
        .assert_existing_objects_matched();
    Checkpoint({{kFinished, &finished}}).restore(path, {.allow_partial = true});
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kDataLoss && e.code() != ErrorCode::kNotFound) throw;
    COHORT_LOG(kWarning, "[sidecar_evaluator] passing over ", path, ": ", e.what());
    return false;
  }
  finished_ = finished != 0;
  return true;
}

Logs SidecarEvaluator::start() {
  Logs logs;
  std::string seen;
  int old_mark = 0;  // polls since one that was there before this began
  for (int done = 0; !options_.max_evaluations || done < *options_.max_evaluations;) {
    const std::optional<std::string> newest = latest_checkpoint(folder_);
    if (!newest || *newest == seen || !restore(*newest)) {
      if (finished_ && ++old_mark > kPollsForOldMark) break;
      std::this_thread::sleep_for(options_.poll_every);
      continue;
    }
    seen = *newest;
    logs = model_.evaluate(
        data_,
        {.steps = options_.steps, .callbacks = options_.callbacks, .verbose = options_.verbose});
    ++done;
    std::string values;
    for (const std::string& name : logs.names()) {
      values += str_cat(values.empty() ? "" : ", ", name, " ", logs.number(name));
    }
    COHORT_LOG(kInfo, "[sidecar_evaluator] ", seen, ": ", values);
    // The first one may be of a training before this one, which has not saved yet.
    if (finished_ && done > 1) break;
  }
  return logs;
}

TrainAndEvaluateResult train_and_evaluate(Model& model, const std::string& model_dir,
                                          const TrainSpec& train, const EvalSpec& evaluation) {
  COHORT_CHECK_ARG(!model_dir.empty(), "[train_and_evaluate] expected a folder, got none");
  if (is_evaluator(model.strategy())) {
    SidecarEvaluator evaluator(model, evaluation.data, model_dir, evaluation.options);
    return {.evaluation = evaluator.start()};
  }
  FitOptions options = train.options;
  const bool evaluates = !has_evaluator(model.strategy());
  if (evaluates && !options.validation_data) {
    options.validation_data = evaluation.data;
    options.validation_steps = evaluation.options.steps;
  }
  options.callbacks.push_back(std::make_shared<FollowedCheckpoints>(model_dir));
  options.callbacks.push_back(
      BackupAndRestore(model_dir + "/backup", {.delete_checkpoint = false}));
  TrainAndEvaluateResult result{.history = model.fit(train.data, options)};
  if (!evaluates) return result;
  result.evaluation = model.evaluate(evaluation.data, {.steps = evaluation.options.steps,
                                                       .callbacks = evaluation.options.callbacks,
                                                       .verbose = evaluation.options.verbose});
  return result;
}

}  // namespace cohort::keras
