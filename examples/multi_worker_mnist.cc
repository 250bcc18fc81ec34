// SPDX-License-Identifier: Apache-2.0
//
// TensorFlow's multi-worker program: the same in every process, each with a TF_CONFIG that says who
// takes part and which of them it is. Alone it trains alone.
//
//   cohortrun --workers 2 -- multi_worker_mnist [--epochs 3] [--batch 64]
//   cohortrun --workers 2 --evaluator --max-restarts 3 -- multi_worker_mnist --folder run
//
// With --folder it goes on from its last checkpoint when it is started again, keeps the model and
// what TensorBoard shows, and an evaluator follows the checkpoints.
#include <cstdio>
#include <string>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

struct Options {
  int epochs = 3;
  int64_t batch = 64;  // of each worker
  int64_t images = 60000;
  uint64_t seed = 1;
  std::string folder = {};
};

void declare(examples::Flags& flags, Options& options) {
  flags.add("--epochs", options.epochs, "Passes over the images", {.at_least = 1});
  flags.add("--batch", options.batch, "Images in a step of each worker", {.at_least = 1});
  flags.add("--images", options.images, "Images of a pass", {.at_least = 1});
  flags.add("--folder", options.folder,
            "Of checkpoints, models and logs; none are written without it");
  flags.add("--seed", options.seed, "Of weights and order; the same on every worker");
}

keras::Sequential build_model() {
  return keras::Sequential({keras::InputLayer({784}), keras::Dense(256, {.activation = "relu"}),
                            keras::Dense(256, {.activation = "relu"}), keras::Dense(10)});
}

void train_by_fit(const Dataset& train, const Dataset& test, const Options& options) {
  keras::Sequential model = build_model();
  model.compile({.optimizer = keras::Adam(),
                 .loss = keras::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {keras::SparseCategoricalAccuracy("accuracy")}});
  if (options.folder.empty()) {
    model.fit(train, {.epochs = options.epochs, .validation_data = test});
    return;
  }
  // Every worker says the same; the chief writes. Without an evaluator they evaluate, too.
  keras::train_and_evaluate(
      model, options.folder,
      {train,
       {.epochs = options.epochs,
        .callbacks = {keras::ModelCheckpoint(options.folder + "/models/{epoch}.keras",
                                             {.save_every_batches = 100}),
                      keras::TensorBoard(options.folder + "/logs")}}},
      {test});
}

int run(const Options& options) {
  set_seed(options.seed);
  // Waits here until all workers have come.
  const MultiWorkerMirroredStrategy strategy;
  const int64_t global_batch = options.batch * strategy.num_replicas_in_sync();
  std::printf("worker %d of %d\n", strategy.extended().layout().worker(),
              strategy.extended().layout().workers());

  const auto [train, test] = data::fashion_mnist({.flatten = true});
  const Dataset batches = train.take(options.images).shuffle(options.images).batch(global_batch);
  const auto scope = strategy.scope();
  train_by_fit(batches, test.take(options.images).batch(1000), options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(argc, argv, "Trains a classifier of clothes on many workers.",
                                     declare, run);
}
