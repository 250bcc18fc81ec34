// SPDX-License-Identifier: Apache-2.0
//
// A training loop of one's own: run a step on every replica, reduce what it returns.
//
//   custom_training_loop [--epochs 2] [--images 60000]
#include <cstdio>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

constexpr int64_t kGlobalBatch = 128;

struct Options {
  int epochs = 2;
  int64_t images = 60000;
};

void declare(examples::Flags& flags, Options& options) {
  flags.add("--epochs", options.epochs, "Passes over the images", {.at_least = 1});
  flags.add("--images", options.images, "How many images to train on", {.at_least = 1});
}

int run(const Options& options) {
  MirroredStrategy strategy;
  const auto dist = strategy.distribute_dataset(data::fashion_mnist({.flatten = true})
                                                    .train.take(options.images)
                                                    .shuffle(options.images)
                                                    .batch(kGlobalBatch));

  auto scope = strategy.scope();
  keras::Sequential model({keras::Dense(256, {.activation = "relu"}), keras::Dense(10)});
  keras::Adam optimizer;
  keras::SparseCategoricalCrossentropy loss_fn(
      {.from_logits = true, .reduction = keras::Reduction::kNone});
  keras::SparseCategoricalAccuracy accuracy;

  const auto step = [&](const Tensor& x, const Tensor& y) -> Tensor {
    GradientTape tape;
    const Tensor logits = model(x, {.training = true});
    const Tensor loss =
        compute_average_loss(loss_fn(y, logits), {.global_batch_size = kGlobalBatch});
    optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()));
    accuracy.update_state(y, logits);
    return loss;
  };

  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    double total = 0;
    int steps = 0;
    for (const auto& batch : dist) {
      total += strategy.reduce(ReduceOp::kSum, strategy.run(step, batch)).item<double>();
      ++steps;
    }
    std::printf("epoch %d: loss %.4f, accuracy %.4f\n", epoch + 1, total / steps,
                accuracy.result().item<double>());
    accuracy.reset_state();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(argc, argv, "Trains with a loop of its own.", declare, run);
}
