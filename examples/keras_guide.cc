// SPDX-License-Identifier: Apache-2.0
//
// The program of Keras's guide to training on several devices and workers, which begins anew or
// goes on with the newest file. Alone it has a replica for each core; as one of several workers
// (TF_CONFIG, or cohortrun) one of its own; as the evaluator of a job it asks how good the newest
// file is.
//
//   keras_guide --folder ckpt                           (again: goes on)
//   cohortrun --workers 2 -- keras_guide --folder ckpt
//   keras_guide --folder ckpt --evaluate
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

struct Options {
  std::string folder = "ckpt";
  int epochs = 2;
  int64_t images = 50000;
  int64_t batch = 32;  // of each replica
  bool evaluate = false;
};

void declare(examples::Flags& flags, Options& options) {
  flags.add("--folder", options.folder, "Of the model's files");
  flags.add("--epochs", options.epochs, "Passes over the images", {.at_least = 1});
  flags.add("--images", options.images, "Images of a pass", {.at_least = 100});
  flags.add("--batch", options.batch, "Images in a step of each replica", {.at_least = 1});
  flags.add("--evaluate", options.evaluate, "Only says how good the newest file is");
}

std::shared_ptr<keras::Model> get_compiled_model() {
  const keras::KerasTensor inputs = keras::Input({784});
  keras::KerasTensor x = keras::Dense(256, {.activation = "relu"})(inputs);
  x = keras::Dense(256, {.activation = "relu"})(x);
  const auto model = std::make_shared<keras::Model>(inputs, keras::Dense(10)(x));
  model->compile({.optimizer = keras::Adam(),
                  .loss = keras::SparseCategoricalCrossentropy({.from_logits = true}),
                  .metrics = {keras::SparseCategoricalAccuracy("accuracy")}});
  return model;
}

std::string newest_file(const std::string& folder) {
  namespace fs = std::filesystem;
  fs::directory_entry newest;
  if (!fs::exists(folder)) return {};
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".keras") continue;
    if (newest.path().empty() || entry.last_write_time() > newest.last_write_time()) newest = entry;
  }
  return newest.path().string();
}

std::shared_ptr<keras::Model> make_or_restore_model(const std::string& folder) {
  const std::string file = newest_file(folder);
  if (file.empty()) {
    std::printf("Creating a new model\n");
    return get_compiled_model();
  }
  std::printf("Restoring from %s\n", file.c_str());
  return keras::load_model(file);
}

int train(const Strategy& strategy, const Options& options) {
  const auto [train, test] = data::fashion_mnist({.flatten = true});
  const int64_t global_batch = options.batch * strategy.num_replicas_in_sync();
  std::printf("Number of devices: %d\n", strategy.num_replicas_in_sync());
  const auto scope = strategy.scope();
  const std::shared_ptr<keras::Model> model = make_or_restore_model(options.folder);
  model->fit(
      train.take(options.images).cache().shuffle(options.images).batch(global_batch).prefetch(),
      {.epochs = options.epochs,
       .validation_data = train.skip(50000).batch(1000),
       .callbacks = {keras::ModelCheckpoint(options.folder + "/ckpt-{epoch}.keras"),
                     keras::TensorBoard(options.folder + "/logs")}});
  model->evaluate(test.batch(1000));
  return 0;
}

int evaluate(const Options& options) {
  const MirroredStrategy strategy;
  const auto scope = strategy.scope();
  const std::shared_ptr<keras::Model> model = make_or_restore_model(options.folder);
  const auto [train, test] = data::fashion_mnist({.flatten = true});
  const keras::Logs results =
      model->evaluate(test.batch(1000), {.verbose = keras::Verbose::kSilent});
  std::printf("accuracy on new images %.3f\n", results.number("accuracy"));
  return results.number("accuracy") > 0.6 ? 0 : 1;
}

int run(const Options& options) {
  set_seed(1);
  if (options.evaluate) return evaluate(options);
  if (std::getenv("TF_CONFIG") == nullptr) return train(MirroredStrategy(), options);
  return train(MultiWorkerMirroredStrategy(), options);  // waits until all workers have come
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(
      argc, argv, "Trains, goes on, and evaluates, as Keras's guide does.", declare, run);
}
