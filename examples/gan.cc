// SPDX-License-Identifier: Apache-2.0
//
// A generative adversarial network with a loop of its own: two models and two optimizers in one
// step. The generator learns eight clusters on a circle; in the end it is counted how many of its
// points lie in one, and how many of the eight it has found.
//
//   gan [--steps 3000] [--batch 256] [--seed 1]
#include <ATen/ops/arange.h>
#include <ATen/ops/cdist.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <cstdio>
#include <set>
#include <utility>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

constexpr int64_t kClusters = 8;
constexpr double kSpread = 0.05;  // standard deviation of a cluster; the circle's radius is 1
constexpr int64_t kNoise = 8;

struct Options {
  int64_t steps = 3000;
  int64_t batch = 256;  // over all replicas
  uint64_t seed = 1;
};

void declare(examples::Flags& flags, Options& options) {
  flags.add("--steps", options.steps, "Steps", {.at_least = 1});
  flags.add("--batch", options.batch, "Points a step, over all replicas", {.at_least = 2});
  flags.add("--seed", options.seed, "Of weights and data");
}

Tensor centres() {
  const Tensor angle = at::arange(kClusters) * (2 * M_PI / kClusters);
  return at::stack({angle.cos(), angle.sin()}, 1);
}

data::Dataset points(const Options& options) {
  const int64_t n = 100 * options.batch;
  const Tensor cluster = at::arange(n) % kClusters;
  const Tensor x = centres().index_select(0, cluster) + kSpread * random_normal({n, 2});
  return data::Dataset::from_tensor_slices(x).shuffle(n).repeat().batch(options.batch);
}

keras::Sequential network(int64_t inputs, int64_t outputs) {
  return keras::Sequential({keras::InputLayer({inputs}), keras::Dense(64, {.activation = "relu"}),
                            keras::Dense(64, {.activation = "relu"}), keras::Dense(outputs)});
}

// How many of the points lie within three deviations of a centre; fills in which centres.
double share_in_clusters(const Tensor& x, std::set<int64_t>& found) {
  const auto [distance, nearest] = at::cdist(x, centres()).min(1);
  const Tensor inside = distance < 3 * kSpread;
  for (int64_t i = 0; i < x.size(0); ++i) {
    if (inside[i].item<bool>()) found.insert(nearest[i].item<int64_t>());
  }
  return inside.to(kFloat32).mean().item<double>();
}

int run(const Options& options) {
  set_seed(options.seed);
  MirroredStrategy strategy;
  const auto data = strategy.distribute_dataset(points(options));
  auto scope = strategy.scope();
  keras::Sequential generator = network(kNoise, 2);
  keras::Sequential discriminator = network(2, 1);
  // The slower one of two: it does not run away from what judges it (TTUR, Heusel et al. 2017).
  keras::Adam generator_optimizer({.learning_rate = 5e-4, .beta_1 = 0.5});
  keras::Adam discriminator_optimizer({.learning_rate = 1e-3, .beta_1 = 0.5});
  keras::BinaryCrossentropy per_example(
      {.from_logits = true, .reduction = keras::Reduction::kNone});
  const auto loss_of = [&](const Tensor& logits, double label) {
    return compute_average_loss(per_example(at::full_like(logits, label), logits),
                                {.global_batch_size = options.batch});
  };

  const auto step = [&](const Tensor& real) -> std::pair<Tensor, Tensor> {
    const Tensor noise = random_normal({real.size(0), kNoise});
    GradientTape generator_tape, discriminator_tape;
    const Tensor fake = generator(noise, {.training = true});
    const Tensor judged = discriminator(fake, {.training = true});
    const Tensor generator_loss = loss_of(judged, 1);
    const Tensor discriminator_loss =
        loss_of(discriminator(real, {.training = true}), 1) + loss_of(judged, 0);
    generator_optimizer.apply_gradients(
        generator_tape.gradient(generator_loss, generator.trainable_variables()));
    discriminator_optimizer.apply_gradients(
        discriminator_tape.gradient(discriminator_loss, discriminator.trainable_variables()));
    return {generator_loss, discriminator_loss};
  };

  int64_t done = 0;
  for (const auto& batch : data) {
    const auto losses = strategy.run(step, batch);
    const bool last = ++done == options.steps;
    if (last || done % 500 == 0) {
      const auto [g, d] = strategy.reduce(ReduceOp::kSum, losses);
      std::printf("step %lld: generator %.3f, discriminator %.3f\n", static_cast<long long>(done),
                  g.item<double>(), d.item<double>());
    }
    if (last) break;
  }
  std::set<int64_t> found;
  const double share = share_in_clusters(generator.predict(random_normal({2000, kNoise})), found);
  std::printf("%.0f %% of the points in clusters, %zu of %lld clusters found\n", 100 * share,
              found.size(), static_cast<long long>(kClusters));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(argc, argv, "Learns eight clusters on a circle.", declare,
                                     run);
}
