// SPDX-License-Identifier: Apache-2.0
//
// A transformer, drawn layer by layer: do sentences of unlike lengths praise the film? (See
// sentences.h.) It looks at all words at once, so a layer of the
// program tells it where each one stands. Ends with an error unless nearly all answers
// are right.
//
//   transformer_classifier [--epochs 8] [--sentences 3000] [--batch 32] [--seed 1]
#include <cstdio>
#include <memory>

#include "cohort/cohort.h"
#include "flags.h"
#include "sentences.h"

using namespace cohort;

namespace {

constexpr int64_t kTestSentences = 500;
constexpr int64_t kWidth = 32;
constexpr int64_t kMostWords = 32;

struct Options {
  int epochs = 8;
  int64_t sentences = 3000;
  int64_t batch = 32;  // over all replicas
  uint64_t seed = 1;
};

void declare(examples::Flags& flags, Options& options) {
  flags.add("--epochs", options.epochs, "Passes over the sentences", {.at_least = 1});
  flags.add("--sentences", options.sentences, "Sentences to learn from", {.at_least = 100});
  flags.add("--batch", options.batch, "Sentences a step, over all replicas", {.at_least = 1});
  flags.add("--seed", options.seed, "Of sentences, weights and order");
}

// x, and a row of a table for each place.
struct AddPositions : keras::LayerBase {
  Variable places;

  void build(const Shape& input) override {
    places = add_weight(
        {.name = "places", .shape = {kMostWords, input.back()}, .initializer = "uniform"});
  }
  Tensor call(const Tensor& x, const keras::CallArgs&) override {
    return x + places.value().narrow(0, 0, x.size(1));
  }
  bool supports_masking() const override { return true; }  // hands the padding's mask on
};

keras::KerasTensor block(const keras::KerasTensor& x) {
  using keras::KerasTensor;
  const KerasTensor seen = keras::MultiHeadAttention(4, kWidth / 4)({x, x});
  const KerasTensor a = keras::LayerNormalization()(keras::Add()({x, seen}));
  const KerasTensor wide = keras::Dense(2 * kWidth, {.activation = "relu"})(a);
  const KerasTensor thought = keras::Dense(kWidth)(wide);
  return keras::LayerNormalization()(keras::Add()({a, thought}));
}

keras::Model transformer(int64_t vocabulary) {
  const keras::KerasTensor words = keras::Input({kUnknownDim}, {.dtype = kInt64, .name = "words"});
  keras::KerasTensor x = keras::Embedding(vocabulary, kWidth, {.mask_zero = true})(words);
  x = keras::Layer(std::make_shared<AddPositions>())(x);
  x = block(block(x));
  const keras::KerasTensor sentence = keras::GlobalAveragePooling1D()(x);
  return keras::Model(words, keras::Dense(1, {.name = "praise"})(sentence));
}

int run(const Options& options) {
  set_seed(options.seed);
  examples::Corpus corpus(options.seed);
  const Dataset train =
      corpus.sentences(options.sentences).shuffle(options.sentences).padded_batch(options.batch);
  const Dataset test = corpus.sentences(kTestSentences).padded_batch(100);

  MirroredStrategy strategy;
  auto scope = strategy.scope();
  keras::Model model = transformer(corpus.vocabulary());
  model.compile({.optimizer = keras::Adam({.learning_rate = 3e-3}),
                 .loss = keras::BinaryCrossentropy({.from_logits = true}),
                 .metrics = {keras::BinaryAccuracy("accuracy", /*threshold=*/0)}});
  model.summary();
  model.fit(train, {.epochs = options.epochs});

  const keras::Logs result = model.evaluate(test, {.verbose = keras::Verbose::kSilent});
  std::printf("accuracy %.3f; by chance 0.5\n", result.number("accuracy"));
  return result.number("accuracy") > 0.95 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(argc, argv, "Learns whether sentences praise a film.", declare,
                                     run);
}
