// SPDX-License-Identifier: Apache-2.0
//
// A ResNet-18 written for LibTorch alone (resnet18.h) trains on Fashion-MNIST on every core: the
// module is a layer, fit does the rest.
//
//   resnet18_torch [--epochs 1] [--steps 0] [--batch 64] [--width 64] [--style fit]
//
// --steps ends each epoch after so many, 0: never. --style torch trains with the loop that LibTorch
// programs have instead: loss.backward() and torch::optim.
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <string>

#include "cohort/cohort.h"
#include "cohort/keras/torch_module.h"
#include "flags.h"
#include "resnet18.h"

using namespace cohort;

namespace {

struct Options {
  int epochs = 1;
  int64_t steps = 0;
  int64_t batch = 64;  // over all replicas
  int64_t width = 64;
  std::string style = "fit";
};

void declare(examples::Flags& flags, Options& options) {
  flags.add("--epochs", options.epochs, "Passes over the images", {.at_least = 1});
  flags.add("--steps", options.steps, "Ends each epoch after so many; 0: does not",
            {.at_least = 0});
  flags.add("--batch", options.batch, "Images a step, over all replicas", {.at_least = 1});
  flags.add("--width", options.width, "Channels of the first block", {.at_least = 1});
  flags.add("--style", options.style, "Who trains: fit, or a loop in LibTorch's words",
            {.one_of = {"fit", "torch"}});
}

Dataset batches(const Dataset& train, const Options& options) {
  const Dataset all = train.shuffle(60000).batch(options.batch);
  return options.steps > 0 ? all.take(options.steps) : all;
}

void train_by_fit(const MirroredStrategy& strategy, const Dataset& train, const Options& options) {
  auto scope = strategy.scope();
  keras::Sequential model(
      {keras::Reshape({1, 28, 28}),  // channels first, as LibTorch's convolutions take them
       keras::TorchModule([&] { return ResNet18(ResNet18Options{.width = options.width}); })});
  model.compile({.optimizer = keras::SGD({.learning_rate = 0.05, .momentum = 0.9}),
                 .loss = keras::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {keras::SparseCategoricalAccuracy("accuracy")}});
  const keras::History history = model.fit(train, {.epochs = options.epochs});
  std::printf("loss %.4f, accuracy %.4f\n", history.history.at("loss").back(),
              history.history.at("accuracy").back());
}

void train_by_torch(const MirroredStrategy& strategy, const Dataset& train,
                    const Options& options) {
  auto scope = strategy.scope();
  keras::DistributedModule model([&] { return ResNet18(ResNet18Options{.width = options.width}); });
  keras::DistributedOptimizer<torch::optim::SGD> optimizer(
      model, torch::optim::SGDOptions(0.05).momentum(0.9));
  const auto dist = strategy.distribute_dataset(train);
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    double total = 0;
    int steps = 0;
    for (const auto& batch : dist) {
      const auto losses = strategy.run(
          [&](const Tensor& x, const Tensor& y) {
            optimizer.zero_grad();
            const Tensor loss =
                torch::nn::functional::cross_entropy(model->forward(x.unsqueeze(1)), y);
            loss.backward();
            optimizer.step();
            return loss.detach();
          },
          batch);
      total += strategy.reduce(ReduceOp::kMean, losses).item<double>();
      ++steps;
    }
    std::printf("epoch %d: loss %.4f\n", epoch + 1, total / steps);
  }
}

int run(const Options& options) {
  const Dataset train = data::fashion_mnist().train;
  const MirroredStrategy strategy;
  std::printf("%d replicas\n", strategy.num_replicas_in_sync());
  if (options.style == "torch") {
    train_by_torch(strategy, batches(train, options), options);
  } else {
    train_by_fit(strategy, batches(train, options), options);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(
      argc, argv, "Trains a ResNet-18 of torch::nn on Fashion-MNIST.", declare, run);
}
