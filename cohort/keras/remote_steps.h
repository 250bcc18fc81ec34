// SPDX-License-Identifier: Apache-2.0
//
// Executions of steps that the chief of a ParameterServerStrategy has its workers make; internal.
//
//   RemoteSteps steps(model, compiled, /*class_weights=*/{}, /*trains=*/true);
//   while (steps.may_begin(/*sent=*/false)) steps.train_from(recipe, 10);
//   while (!steps.is_idle()) steps.take();      // compiled's metrics are those of all of them
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/keras/compiled_model.h"
#include "cohort/keras/model.h"
#include "cohort/keras/steps_done.h"
#include "cohort/keras/worker_model.h"

namespace cohort::keras::internal {

struct DatasetRecipe;

/// Some are ahead of those that have ended, so that no worker waits, and not so many that what ends
/// fit would wait for long. Errors, of all: the first one that a worker's function threw, when no
/// other runs any more. Threads: bound to one thread.
class RemoteSteps {
 public:
  /// `trains`: the optimizer is built, and its state on the servers. No class weights: undefined.
  /// Errors: Unimplemented for a model that does not say what it is made with.
  RemoteSteps(keras::Model& model, CompiledModel& compiled, const Tensor& class_weights,
              bool trains);
  /// Blocks: until none runs any more.
  ~RemoteSteps();
  RemoteSteps(const RemoteSteps&) = delete;
  RemoteSteps& operator=(const RemoteSteps&) = delete;

  int workers() const { return workers_; }
  /// Whether another one may be begun. `sent`: with batches that wait here meanwhile.
  bool may_begin(bool sent) const;
  /// None has been begun that was not taken.
  bool is_idle() const { return begun_.empty(); }

  /// Each worker reads on in the data that it makes by itself.
  /// Errors: InvalidArgument for a function that is not registered.
  void train_from(const DatasetRecipe& recipe, int64_t steps);
  void train_on(const std::vector<std::string>& packed_batches);
  void test_on(const std::vector<std::string>& packed_batches);
  /// As test_worker_shard().
  void test_shard(const DatasetRecipe& recipe, int64_t steps, int64_t shards, int64_t shard);

  /// The one that was begun first: adds what it brings to the metrics here.
  /// Blocks: until it has ended.
  StepsDone take();
  /// Of all that were taken: the loss and the metrics; what else a step logs is the last one's.
  keras::Logs logs() const { return logs_; }

 private:
  void add(const StepsDone& done);
  void take_logs(const StepsDone& done);
  double rate() const;
  PerWorkerDataset dataset_of(const DatasetRecipe& recipe,
                              const std::optional<InputContext>& context);

  keras::Model& model_;
  CompiledModel& compiled_;
  ClusterCoordinator coordinator_;
  const int workers_;
  PerWorkerValues<WorkerModel> models_;
  std::optional<PerWorkerIterator> trained_;
  std::optional<std::pair<const DatasetRecipe*, PerWorkerDataset>> tested_;
  std::deque<RemoteValue<StepsDone>> begun_;
  keras::Logs logs_;
};

}  // namespace cohort::keras::internal
