// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/worker_model.h"

#include <span>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/coordinator/function.h"
#include "cohort/data/core/internal/state.h"
#include "cohort/keras/config.h"
#include "cohort/keras/trainer.h"

namespace cohort::keras::internal {
namespace {

// By names variables are found: one that is called otherwise is another one.
void check_names(const char* what, std::span<const Variable> here,
                 const std::vector<std::string>& chiefs) {
  COHORT_CHECK_ARG(here.size() == chiefs.size(), "[fit] expected workers to make ", chiefs.size(),
                   " ", what, " of the model's config, as the chief has, got ", here.size());
  for (std::size_t i = 0; i < chiefs.size(); ++i) {
    COHORT_CHECK_ARG(here[i].name() == chiefs[i], "[fit] expected ", what,
                     " whose names nobody else has in this program, for workers find them by that, "
                     "got \"",
                     here[i].name(), "\", which the chief had to call \"", chiefs[i],
                     "\": give layers and optimizers names of their own, as in keras::Dense(8, "
                     "{.name = \"first\"}) and keras::Adam({.name = \"first_adam\"})");
  }
}

PerReplica<Element> of_one_replica(Element batch) {
  std::vector<Element> parts;
  parts.push_back(std::move(batch));
  return PerReplica<Element>(std::move(parts));
}

}  // namespace

WorkerModel::WorkerModel(const std::string& config, const std::vector<std::string>& weights,
                         const std::vector<std::string>& optimizer_state, Tensor class_weights)
    : model_(keras::model_from_config(keras::Config::parse_json(config))),
      class_weights_(std::move(class_weights)) {
  check_names("weights", model_->variables(), weights);
  if (optimizer_state.empty()) return;
  model_->optimizer().build(model_->trainable_variables());
  check_names("variables of the optimizer", model_->optimizer().variables(), optimizer_state);
}

void WorkerModel::set_rate(double rate) const {
  if (rate >= 0) model_->optimizer().set_learning_rate(rate);
}

StepsDone WorkerModel::train_from(DistributedIterator& data, int64_t steps, double rate) {
  set_rate(rate);
  Trainer run(*model_, "fit");
  run.begin_steps(Trainer::Mode::kTrain, class_weights_);
  for (int64_t step = 0; step < steps; ++step) {
    std::optional<PerReplica<Element>> batch = data.next();
    if (!batch) {
      throw Error(
          ErrorCode::kOutOfRange,
          str_cat("[fit] worker ", get_current_worker_index(),
                  "'s dataset has ended before the steps that were asked for; whichever "
                  "worker is free takes the next step, so the dataset of each has to go on: "
                  "repeat() it in the function of the DatasetCreator"));
    }
    run.step_here(std::move(*batch));
    cohort::internal::base::failpoint("worker.own_step");
  }
  return run.end_steps();
}

StepsDone WorkerModel::train_on(const std::vector<std::string>& batches, double rate) {
  set_rate(rate);
  Trainer run(*model_, "fit");
  run.begin_steps(Trainer::Mode::kTrain, class_weights_);
  for (const std::string& batch : batches) {
    run.step_here(of_one_replica(unpacked_batch(batch)));
    cohort::internal::base::failpoint("worker.sent_step");
  }
  return run.end_steps();
}

StepsDone WorkerModel::test_on(const std::vector<std::string>& batches) {
  Trainer run(*model_, "evaluate");
  run.begin_steps(Trainer::Mode::kTest, {});
  for (const std::string& batch : batches) run.step_here(of_one_replica(unpacked_batch(batch)));
  return run.end_steps();
}

StepsDone WorkerModel::test(const Dataset& batches) {
  Trainer run(*model_, "evaluate");
  run.begin_steps(Trainer::Mode::kTest, {});
  for (const Element& batch : batches) {
    run.step_here(of_one_replica(batch));
    cohort::internal::base::failpoint("worker.test_step");
  }
  return run.end_steps();
}

std::shared_ptr<WorkerModel> make_worker_model(const std::string& config,
                                               const std::vector<std::string>& weights,
                                               const std::vector<std::string>& optimizer_state,
                                               const std::vector<Tensor>& class_weights) {
  return std::make_shared<WorkerModel>(config, weights, optimizer_state,
                                       class_weights.empty() ? Tensor() : class_weights.front());
}

StepsDone train_worker_from(WorkerModel& model, DistributedIterator& data, int64_t steps,
                            double rate) {
  return model.train_from(data, steps, rate);
}

StepsDone train_worker_on(WorkerModel& model, const std::vector<std::string>& batches,
                          double rate) {
  return model.train_on(batches, rate);
}

StepsDone test_worker_on(WorkerModel& model, const std::vector<std::string>& batches) {
  return model.test_on(batches);
}

StepsDone test_worker_shard(WorkerModel& model, Dataset& data, int64_t steps, int64_t shards,
                            int64_t shard) {
  const Dataset all = steps < 0 ? data : data.take(steps);
  return model.test(all.shard(shards, shard));
}

std::string packed_batch(const Element& batch) {
  cohort::internal::data::StateWriter out;
  out.put_element(batch);
  return std::move(out).take();
}

Element unpacked_batch(const std::string& bytes) {
  cohort::internal::data::StateReader in(bytes);
  Element batch = in.get_element();
  in.expect_end();
  return batch;
}

namespace {
const cohort::internal::coordinator::Registration kRegistered[] = {
    {"keras.make_model", &make_worker_model},
    {"keras.train_from", &train_worker_from},
    {"keras.train_on", &train_worker_on},
    {"keras.test_on", &test_worker_on},
    {"keras.test_shard", &test_worker_shard}};
}  // namespace

}  // namespace cohort::keras::internal
