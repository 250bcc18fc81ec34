// SPDX-License-Identifier: Apache-2.0
//
// Transfer learning from a file of Python's Keras: models/clothes_features.keras tells ten kinds of
// clothes apart (models/make_clothes_features.py made it). Its layers, frozen, with a new head
// learn from few images where something is worn; then all of it is trained on at a low rate. Ends
// with an error unless that is better than the same network that begins with nothing.
//
//   transfer_learning [--model models/clothes_features.keras] [--images 20] [--epochs 30] [--seed
//   1]
#include <cstdio>
#include <memory>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

constexpr int64_t kPlaces = 4;  // trunk, legs, feet, hand
constexpr int64_t kTestImages = 1000;

struct Options {
  std::string model = COHORT_EXAMPLE_MODELS "/clothes_features.keras";
  int64_t images = 20;
  int epochs = 30;
  uint64_t seed = 1;
};

void declare(examples::Flags& flags, Options& options) {
  flags.add("--model", options.model, "The file that Keras wrote");
  flags.add("--images", options.images, "Images to learn from", {.at_least = 10});
  flags.add("--epochs", options.epochs, "Passes of each part over the images", {.at_least = 1});
  flags.add("--seed", options.seed, "Of weights and order");
}

// Images, and where each kind of clothes is worn.
Dataset worn_where(const Dataset& all, int64_t count) {
  const Tensor place_of = tensor({0, 1, 0, 0, 0, 2, 0, 2, 3, 2}, kInt64);
  return all.take(count)
      .map([place_of](const Tensor& x, const Tensor& y) {
        return std::tuple(x.unsqueeze(-1), place_of[y.item<int64_t>()]);
      })
      .cache();
}

// All layers of the file's model but the last, and a new one.
std::shared_ptr<keras::Model> with_new_head(const keras::Model& old) {
  std::vector<keras::Layer> layers = old.layers();
  layers.back() = keras::Dense(kPlaces, {.name = "places"});
  return std::make_shared<keras::Sequential>(layers);
}

void set_trainable_below_head(const keras::Model& model, bool on) {
  for (std::size_t i = 0; i + 1 < model.layers().size(); ++i) model.layers()[i].set_trainable(on);
}

void train(keras::Model& model, const Dataset& images, const Options& options, double rate) {
  model.compile({.optimizer = keras::Adam({.learning_rate = rate}),
                 .loss = keras::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  model.fit(images.shuffle(options.images).batch(10),
            {.epochs = options.epochs, .verbose = keras::Verbose::kSilent});
}

double accuracy_of(keras::Model& model, const Dataset& images) {
  return model.evaluate(images.batch(250), {.verbose = keras::Verbose::kSilent}).number("accuracy");
}

int run(const Options& options) {
  set_seed(options.seed);
  const auto [all_images, all_tests] = data::fashion_mnist();
  const Dataset images = worn_where(all_images, options.images);
  const Dataset tests = worn_where(all_tests, kTestImages);

  MirroredStrategy strategy;
  auto scope = strategy.scope();
  const std::shared_ptr<keras::Model> old = keras::load_model(options.model, {.compile = false});
  const std::string untaught = old->to_json();  // the same layers without what they know

  const std::shared_ptr<keras::Model> model = with_new_head(*old);
  set_trainable_below_head(*model, false);
  train(*model, images, options, 1e-2);
  model->summary();
  const double frozen = accuracy_of(*model, tests);
  set_trainable_below_head(*model, true);
  train(*model, images, options, 1e-4);  // compiles again, as what is trained has changed
  const double tuned = accuracy_of(*model, tests);

  const std::shared_ptr<keras::Model> fresh = with_new_head(*keras::model_from_json(untaught));
  train(*fresh, images, options, 1e-3);
  train(*fresh, images, options, 1e-3);
  const double alone = accuracy_of(*fresh, tests);
  std::printf("accuracy with a new head %.3f, fine-tuned %.3f; without the file %.3f\n", frozen,
              tuned, alone);
  return frozen > alone && tuned > alone ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(argc, argv, "Answers a new question with what a file knows.",
                                     declare, run);
}
