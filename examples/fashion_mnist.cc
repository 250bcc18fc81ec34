// SPDX-License-Identifier: Apache-2.0
//
// Trains a classifier of clothes on every core of the machine: the README's program, with a few
// words about what it does.
//
//   fashion_mnist [--epochs 5] [--batch 128] [--seed 1] [--weights fashion.safetensors]
#include <chrono>
#include <cstdio>
#include <string>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

struct Options {
  int epochs = 5;
  int64_t batch = 128;  // over all replicas
  uint64_t seed = 1;
  std::string weights = "fashion.safetensors";
};

void declare(examples::Flags& flags, Options& options) {
  flags.add("--epochs", options.epochs, "Passes over the images",
            {.at_least = 1, .variable = "COHORT_DEMO_EPOCHS"});
  flags.add("--batch", options.batch, "Images a step, over all replicas", {.at_least = 1});
  flags.add("--seed", options.seed, "Of the initial weights and the order of the images");
  flags.add("--weights", options.weights, "The file that the weights are written to");
}

int run(const Options& options) {
  set_seed(options.seed);
  const auto [train, test] = data::fashion_mnist({.flatten = true});

  MirroredStrategy strategy;
  std::printf("%d replicas:", strategy.num_replicas_in_sync());
  for (const Device& device : strategy.extended().worker_devices()) {
    std::printf(" %s", device.short_name().c_str());
  }
  std::printf("\n");

  auto scope = strategy.scope();
  keras::Sequential model({keras::InputLayer({784}), keras::Dense(256, {.activation = "relu"}),
                           keras::Dense(256, {.activation = "relu"}), keras::Dense(10)});
  model.compile({.optimizer = keras::Adam(),
                 .loss = keras::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {keras::SparseCategoricalAccuracy("accuracy")}});
  model.summary();

  const auto start = std::chrono::steady_clock::now();
  model.fit(train.shuffle(60000).batch(options.batch),
            {.epochs = options.epochs, .validation_data = test.batch(1000)});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;

  const keras::Logs result = model.evaluate(test.batch(1000), {.verbose = keras::Verbose::kSilent});
  std::printf("test loss %.4f, test accuracy %.4f\n", result.number("loss"),
              result.number("accuracy"));
  std::printf("%d epochs in %.2f s: %.0f examples/s\n", options.epochs, took.count(),
              60000.0 * options.epochs / took.count());
  model.save_weights(options.weights);
  std::printf("weights written to %s\n", options.weights.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(argc, argv, "Trains a classifier of clothes on every core.",
                                     declare, run);
}
