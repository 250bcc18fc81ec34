// SPDX-License-Identifier: Apache-2.0
//
// What fit and evaluate do on the workers of a ParameterServerStrategy: functions that the chief
// schedules, and the model that they run, which is made there of the chief's config; internal.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/keras/model.h"
#include "cohort/keras/steps_done.h"
#include "cohort/strategy/distributed_dataset.h"

namespace cohort::keras::internal {

/// A worker's own of a chief's model: its layers, with the weights that lie on the servers, and
/// metrics of this process. Threads: thread-compatible.
class WorkerModel {
 public:
  /// `weights` and `optimizer_state`: the names of the chief's variables. No state: the optimizer
  /// is not built. Errors: as model_from_config; InvalidArgument that names the first variable
  /// which is called otherwise here.
  WorkerModel(const std::string& config, const std::vector<std::string>& weights,
              const std::vector<std::string>& optimizer_state, Tensor class_weights);

  /// Up to so many steps. `rate`: below 0 a schedule decides.
  /// Errors: Error kOutOfRange where the data ends.
  StepsDone train_from(DistributedIterator& data, int64_t steps, double rate);
  StepsDone train_on(const std::vector<std::string>& batches, double rate);
  StepsDone test_on(const std::vector<std::string>& batches);
  StepsDone test(const Dataset& batches);

 private:
  void set_rate(double rate) const;

  const std::shared_ptr<keras::Model> model_;
  const Tensor class_weights_;
};

std::shared_ptr<WorkerModel> make_worker_model(const std::string& config,
                                               const std::vector<std::string>& weights,
                                               const std::vector<std::string>& optimizer_state,
                                               const std::vector<Tensor>& class_weights);
StepsDone train_worker_from(WorkerModel& model, DistributedIterator& data, int64_t steps,
                            double rate);
StepsDone train_worker_on(WorkerModel& model, const std::vector<std::string>& batches, double rate);
StepsDone test_worker_on(WorkerModel& model, const std::vector<std::string>& batches);
/// Every `shards`-th of the first `steps` batches, from `shard` on. steps < 0: of all.
StepsDone test_worker_shard(WorkerModel& model, Dataset& data, int64_t steps, int64_t shards,
                            int64_t shard);

/// A batch as a text, which travels, and back. Errors: Unimplemented for datasets of datasets.
std::string packed_batch(const Element& batch);
Element unpacked_batch(const std::string& bytes);

}  // namespace cohort::keras::internal
