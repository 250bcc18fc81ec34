// SPDX-License-Identifier: Apache-2.0
//
// Sentences of unlike lengths, padded and masked, through a Bidirectional LSTM: do they praise the
// film? "the film was not dull but the seat was poor" does. The order of the words decides, so a
// bag of the same words, which is trained beside it, cannot know; ends with an error unless the
// LSTM does.
//
//   lstm_text [--epochs 6] [--sentences 3000] [--batch 32] [--seed 1]
#include <cstdio>

#include "cohort/cohort.h"
#include "flags.h"
#include "sentences.h"

using namespace cohort;

namespace {

constexpr int64_t kTestSentences = 500;

struct Options {
  int epochs = 6;
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

// mask_zero: behind the embedding, steps that are padding do not count.
keras::Sequential reader(int64_t vocabulary) {
  return keras::Sequential({keras::Embedding(vocabulary, 16, {.mask_zero = true}),
                            keras::Bidirectional(keras::LSTM(24)), keras::Dropout(0.2),
                            keras::Dense(1)});
}

keras::Sequential bag_of_words(int64_t vocabulary) {
  return keras::Sequential({keras::Embedding(vocabulary, 16, {.mask_zero = true}),
                            keras::GlobalAveragePooling1D(),
                            keras::Dense(32, {.activation = "relu"}), keras::Dense(1)});
}

double trained_accuracy(keras::Model& model, const Dataset& train, const Dataset& test,
                        int epochs) {
  model.compile({.optimizer = keras::Adam({.learning_rate = 0.01}),
                 .loss = keras::BinaryCrossentropy({.from_logits = true}),
                 .metrics = {keras::BinaryAccuracy("accuracy", /*threshold=*/0)}});
  model.fit(train, {.epochs = epochs});
  return model.evaluate(test, {.verbose = keras::Verbose::kSilent}).number("accuracy");
}

int run(const Options& options) {
  set_seed(options.seed);
  examples::Corpus corpus(options.seed);
  const Dataset train =
      corpus.sentences(options.sentences).shuffle(options.sentences).padded_batch(options.batch);
  const Dataset test = corpus.sentences(kTestSentences).padded_batch(100);

  MirroredStrategy strategy;
  auto scope = strategy.scope();
  keras::Sequential bag = bag_of_words(corpus.vocabulary());
  const double by_words = trained_accuracy(bag, train, test, options.epochs);
  keras::Sequential model = reader(corpus.vocabulary());
  const double in_order = trained_accuracy(model, train, test, options.epochs);
  model.summary();

  for (const char* text : {"the film was not dull but the seat was poor",
                           "oh my the weather is great and the film is not good"}) {
    const double praise = model.predict(corpus.numbers(text).unsqueeze(0)).sigmoid().item<double>();
    std::printf("%.2f  %s\n", praise, text);
  }
  std::printf("accuracy %.3f; of a bag of words %.3f\n", in_order, by_words);
  return in_order > 0.95 && in_order > by_words ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(argc, argv, "Learns whether sentences praise a film.", declare,
                                     run);
}
