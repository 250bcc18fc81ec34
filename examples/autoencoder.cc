// SPDX-License-Identifier: Apache-2.0
//
// A denoising autoencoder of clothes: 784 pixels with noise, 32 numbers, 784 pixels without.
// Encoder and decoder are models of their own, and parts of the one that is trained. Draws what
// comes of an image; ends with an error unless what was decoded is nearer to the images than their
// mean, and than the noisy pixels.
//
//   autoencoder [--epochs 8] [--images 4000] [--batch 64] [--seed 1]
#include <cstdio>
#include <memory>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

constexpr int64_t kPixels = 784;
constexpr int64_t kCode = 32;
constexpr int64_t kTestImages = 500;

struct Options {
  int epochs = 8;
  int64_t images = 4000;
  int64_t batch = 64;  // over all replicas
  uint64_t seed = 1;
};

void declare(examples::Flags& flags, Options& options) {
  flags.add("--epochs", options.epochs, "Passes over the images", {.at_least = 1});
  flags.add("--images", options.images, "Images to learn from", {.at_least = 100});
  flags.add("--batch", options.batch, "Images a step, over all replicas", {.at_least = 1});
  flags.add("--seed", options.seed, "Of weights, noise and order");
}

Tensor images_of(const Dataset& rows, int64_t count) {
  return rows.batch(count).get_single_element()[0].tensor();
}

Tensor with_noise(const Tensor& images) {
  return (images + 0.3 * random_normal(shape_of(images))).clamp(0, 1);
}

double error_of(const Tensor& x, const Tensor& y) { return (x - y).square().mean().item<double>(); }

void draw(const char* title, const Tensor& image) {
  std::printf("%s\n", title);
  const auto pixels = to_vector<float>(image.reshape({14, 2, 28}).mean(1));
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    std::printf("%c%s", " .:-=+*#%@"[static_cast<int>(pixels[i] * 9.99F)],
                i % 28 == 27 ? "\n" : "");
  }
}

int run(const Options& options) {
  set_seed(options.seed);
  const auto [all_images, all_tests] = data::fashion_mnist({.flatten = true});
  const Tensor images = images_of(all_images.take(options.images), options.images);
  const Tensor tests = images_of(all_tests.take(kTestImages), kTestImages);

  MirroredStrategy strategy;
  auto scope = strategy.scope();
  const keras::KerasTensor image = keras::Input({kPixels});
  const keras::KerasTensor hidden = keras::Dense(128, {.activation = "relu"})(image);
  const auto encoder =
      std::make_shared<keras::Model>(image, keras::Dense(kCode)(hidden), "encoder");
  const auto decoder = std::make_shared<keras::Sequential>(
      std::vector<keras::Layer>{keras::InputLayer({kCode}),
                                keras::Dense(128, {.activation = "relu"}),
                                keras::Dense(kPixels, {.activation = "sigmoid"})},
      "decoder");
  const keras::KerasTensor noisy_image = keras::Input({kPixels});
  keras::Model autoencoder(noisy_image, keras::Layer(decoder)(keras::Layer(encoder)(noisy_image)));
  autoencoder.compile({.optimizer = "adam", .loss = "binary_crossentropy"});
  autoencoder.summary();

  // Other noise in every epoch.
  const Dataset training = Dataset::from_tensor_slices(images)
                               .map([](const Tensor& x) { return std::tuple(with_noise(x), x); })
                               .shuffle(options.images)
                               .batch(options.batch);
  autoencoder.fit(training, {.epochs = options.epochs});

  const keras::PredictOptions quiet{.verbose = keras::Verbose::kSilent};
  const Tensor noisy = with_noise(tests);
  const Tensor code = encoder->predict(noisy, quiet);
  const Tensor decoded = decoder->predict(code, quiet);
  draw("with noise", noisy[0]);
  draw("decoded", decoded[0]);
  const double error = error_of(decoded, tests);
  const double of_mean = error_of(images.mean(0), tests);
  std::printf("%lld numbers an image: error %.4f; of the mean image %.4f, of the noisy ones %.4f\n",
              static_cast<long long>(code.size(1)), error, of_mean, error_of(noisy, tests));
  return error < of_mean / 3 && error < error_of(noisy, tests) / 2 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(argc, argv, "Takes the noise from images.", declare, run);
}
