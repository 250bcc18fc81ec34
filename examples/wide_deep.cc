// SPDX-License-Identifier: Apache-2.0
//
// A wide-and-deep recommender by `fit`, on every core: who likes which film? Inputs with names,
// tables of embeddings, and a wide part that remembers pairs of user and kind of film.
// (wide_deep_ps.cc keeps tables that are too large for one machine on parameter servers.) The
// ratings are made here, so it is known how well one can do; ends with an error unless the
// recommender comes near to that.
//
//   wide_deep [--epochs 5] [--ratings 20000] [--batch 256] [--seed 1]
#include <ATen/ops/sigmoid.h>

#include <cstdio>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

constexpr int64_t kUsers = 200;
constexpr int64_t kFilms = 300;
constexpr int64_t kKinds = 8;
constexpr int64_t kNumbers = 4;

struct Options {
  int epochs = 5;
  int64_t ratings = 20000;
  int64_t batch = 256;  // over all replicas
  uint64_t seed = 1;
};

void declare(examples::Flags& flags, Options& options) {
  flags.add("--epochs", options.epochs, "Passes over the ratings", {.at_least = 1});
  flags.add("--ratings", options.ratings, "Ratings to learn from", {.at_least = 1000});
  flags.add("--batch", options.batch, "Ratings a step, over all replicas", {.at_least = 1});
  flags.add("--seed", options.seed, "Of ratings, weights and order");
}

struct Ratings {
  Element x;
  Tensor liked;   // [n, 1]
  Tensor chance;  // of being liked, which nobody sees
};

Tensor numbers_below(int64_t end, int64_t n) {
  return (random_uniform({n, 1}) * static_cast<double>(end)).to(kInt64).clamp_max(end - 1);
}

// A film has a kind and is more or less good; a user likes some kinds; the hour matters a little.
Ratings ratings(int64_t n, const Tensor& quality, const Tensor& taste) {
  const Tensor user = numbers_below(kUsers, n);
  const Tensor film = numbers_below(kFilms, n);
  const Tensor numbers = random_normal({n, kNumbers});
  const Tensor pair = user * kKinds + film % kKinds;
  const Tensor score = quality.index_select(0, film.flatten()).unsqueeze(1) +
                       taste.index_select(0, pair.flatten()).unsqueeze(1) +
                       0.5 * numbers.narrow(1, 0, 1) * numbers.narrow(1, 1, 1);
  const Tensor chance = at::sigmoid(score);
  return {
      Element::named({{"user", user}, {"film", film}, {"user_x_kind", pair}, {"numbers", numbers}}),
      (random_uniform({n, 1}) < chance).to(kFloat32), chance};
}

keras::Model recommender() {
  using keras::KerasTensor;
  const KerasTensor user = keras::Input({1}, {.dtype = kInt64, .name = "user"});
  const KerasTensor film = keras::Input({1}, {.dtype = kInt64, .name = "film"});
  const KerasTensor pair = keras::Input({1}, {.dtype = kInt64, .name = "user_x_kind"});
  const KerasTensor numbers = keras::Input({kNumbers}, {.name = "numbers"});

  const KerasTensor wide = keras::Flatten()(keras::Embedding(kUsers * kKinds, 1)(pair));
  const KerasTensor of_user = keras::Flatten()(keras::Embedding(kUsers, 8)(user));
  const KerasTensor of_film = keras::Flatten()(keras::Embedding(kFilms, 8)(film));
  KerasTensor deep = keras::Concatenate()({of_user, of_film, numbers});
  deep = keras::Dense(32, {.activation = "relu"})(deep);
  deep = keras::Dense(16, {.activation = "relu"})(deep);
  const KerasTensor score = keras::Add()({keras::Dense(1)(deep), wide});
  return keras::Model(
      KerasTensor::named(
          {{"user", user}, {"film", film}, {"user_x_kind", pair}, {"numbers", numbers}}),
      keras::Activation("sigmoid", {.name = "likes"})(score));
}

double auc_of(const Tensor& liked, const Tensor& forecast) {
  keras::AUC auc({.name = "best"});
  auc.update_state(liked, forecast);
  return auc.result().item<double>();
}

int run(const Options& options) {
  set_seed(options.seed);
  const Tensor quality = random_normal({kFilms});
  const Tensor taste = 1.5 * random_normal({kUsers * kKinds});
  const Ratings train = ratings(options.ratings, quality, taste);
  const Ratings test = ratings(4000, quality, taste);
  const double best = auc_of(test.liked, test.chance);

  MirroredStrategy strategy;
  std::printf("%d replicas\n", strategy.num_replicas_in_sync());
  auto scope = strategy.scope();
  keras::Model model = recommender();
  model.compile({.optimizer = keras::Adam({.learning_rate = 0.01}),
                 .loss = "binary_crossentropy",
                 .metrics = {keras::AUC({.name = "auc"})}});
  model.summary();
  model.fit(Dataset::from_tensor_slices(Element{train.x, train.liked})
                .shuffle(options.ratings)
                .batch(options.batch)
                .prefetch(),
            {.epochs = options.epochs});

  const keras::Logs result =
      model.evaluate(Dataset::from_tensor_slices(Element{test.x, test.liked}).batch(1000),
                     {.verbose = keras::Verbose::kSilent});
  const double auc = result.number("auc");
  std::printf("AUC %.3f; by chance 0.5, at best %.3f\n", auc, best);
  return auc - 0.5 > 0.7 * (best - 0.5) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(argc, argv, "Learns who likes which film.", declare, run);
}
