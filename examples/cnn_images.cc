// SPDX-License-Identifier: Apache-2.0
//
// A convolutional network that tells clothes apart: convolutions, batch normalisation, dropout,
// over images in a pipeline that brightens some of them. Ends with an error unless it is better
// than taking the class whose mean image is nearest.
//
//   cnn_images [--epochs 3] [--images 6000] [--batch 64] [--seed 1]
#include <ATen/ops/cdist.h>

#include <cstdio>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

constexpr int64_t kClasses = 10;
constexpr int64_t kTestImages = 1000;

struct Options {
  int epochs = 3;
  int64_t images = 6000;
  int64_t batch = 64;  // over all replicas
  uint64_t seed = 1;
};

void declare(examples::Flags& flags, Options& options) {
  flags.add("--epochs", options.epochs, "Passes over the images", {.at_least = 1});
  flags.add("--images", options.images, "Images to learn from", {.at_least = 100});
  flags.add("--batch", options.batch, "Images a step, over all replicas", {.at_least = 1});
  flags.add("--seed", options.seed, "Of the initial weights and the order of the images");
}

// What no network is needed for.
double accuracy_of_nearest_mean(const Dataset& train, const Dataset& test, int64_t images) {
  const Element rows = train.batch(images).get_single_element();
  const Element asked = test.batch(kTestImages).get_single_element();
  const Tensor members = one_hot(rows[1].tensor(), kClasses);
  const Tensor sums = members.t().matmul(rows[0].tensor().flatten(1));
  const Tensor means = sums / members.sum(0).unsqueeze(1);
  const Tensor nearest = at::cdist(asked[0].tensor().flatten(1), means).argmin(1);
  return (nearest == asked[1].tensor()).to(kFloat32).mean().item<double>();
}

keras::Sequential network() {
  return keras::Sequential({
      keras::InputLayer({28, 28, 1}),
      keras::Conv2D(16, 3, {.padding = "same", .use_bias = false}),
      keras::BatchNormalization({.momentum = 0.9}),
      keras::ReLU(),
      keras::MaxPooling2D(2),
      keras::Conv2D(32, 3, {.padding = "same", .use_bias = false}),
      keras::BatchNormalization({.momentum = 0.9}),
      keras::ReLU(),
      keras::MaxPooling2D(2),
      keras::Flatten(),
      keras::Dropout(0.25),
      keras::Dense(kClasses),
  });
}

int run(const Options& options) {
  set_seed(options.seed);
  const auto [all_images, all_tests] = data::fashion_mnist();
  const Dataset train = all_images.take(options.images);
  const Dataset test = all_tests.take(kTestImages);

  const auto with_channel = [](const Tensor& x, const Tensor& y) {
    return std::tuple(x.unsqueeze(-1), y);
  };
  const auto brighten = [](const Tensor& x, const Tensor& y) {
    return std::tuple((x * (0.8 + 0.4 * random_uniform({}))).clamp_max(1), y);
  };
  const Dataset training =
      train.map(with_channel).map(brighten).shuffle(options.images).batch(options.batch).prefetch();

  MirroredStrategy strategy;
  auto scope = strategy.scope();
  keras::Sequential model = network();
  model.compile({.optimizer = keras::Adam({.learning_rate = 2e-3}),
                 .loss = keras::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  model.summary();
  model.fit(training, {.epochs = options.epochs});

  const keras::Logs result =
      model.evaluate(test.map(with_channel).batch(200), {.verbose = keras::Verbose::kSilent});
  const double accuracy = result.number("accuracy");
  const double simple = accuracy_of_nearest_mean(train, test, options.images);
  std::printf("accuracy %.3f; by the nearest mean %.3f\n", accuracy, simple);
  return accuracy > simple + 0.05 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(argc, argv, "Tells clothes apart by convolutions.", declare,
                                     run);
}
