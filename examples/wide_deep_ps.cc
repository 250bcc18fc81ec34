// SPDX-License-Identifier: Apache-2.0
//
// A wide-and-deep recommender on parameter servers: a chief that schedules steps, workers that run
// them, servers that keep the tables.
//
//   cohortrun --ps 2 --workers 2 --chief -- wide_deep_ps [--rows 1000000 --steps 2000]
//
// The data is made here, in the way of Criteo's: 13 numbers and 26 words of each impression, some
// words far more frequent than others, and whether somebody has clicked.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

constexpr int64_t kWords = 26;
constexpr int64_t kNumbers = 13;
constexpr int64_t kWidth = 16;
constexpr int64_t kBatch = 256;
// Far from those of the workers' steps.
constexpr int64_t kHeldOut = int64_t{1} << 40;

struct Options {
  int64_t rows = 1000000;
  int steps = 2000;
};

/// What a word is worth: a number in [-1, 1] that the model has to find.
double worth(int64_t word) {
  uint64_t mixed = static_cast<uint64_t>(word + 1) * 0x9e3779b97f4a7c15ULL;
  mixed ^= mixed >> 29;
  mixed *= 0xbf58476d1ce4e5b9ULL;
  return static_cast<double>(mixed >> 40) / (1 << 23) - 1;
}

/// Batch `number` of all that there are.
std::tuple<Tensor, Tensor, Tensor> impressions(int64_t rows, int64_t number) {
  std::mt19937_64 random(static_cast<uint64_t>(number));
  std::uniform_real_distribution<double> uniform;
  const int64_t of_each = rows / kWords;
  std::vector<int64_t> words;
  std::vector<float> numbers;
  std::vector<float> clicked;
  for (int64_t row = 0; row < kBatch; ++row) {
    double score = -0.5;
    for (int64_t f = 0; f < kWords; ++f) {
      const double rank =
          std::pow(static_cast<double>(of_each), uniform(random)) - 1;  // Zipf's law
      words.push_back(f * of_each + static_cast<int64_t>(rank));
      score += 0.8 * worth(words.back());
    }
    for (int64_t n = 0; n < kNumbers; ++n) {
      numbers.push_back(static_cast<float>(uniform(random) - 0.5));
      score += (n % 2 == 0 ? 0.5 : -0.5) * numbers.back();
    }
    clicked.push_back(uniform(random) < 1 / (1 + std::exp(-score)) ? 1.0F : 0.0F);
  }
  return {from_vector(words, {kBatch, kWords}), from_vector(numbers, {kBatch, kNumbers}),
          from_vector(clicked, {kBatch, 1})};
}

Dataset batches_from(int64_t rows, int64_t first) {
  return Dataset::counter(first).map(
      [rows](const Tensor& number) { return impressions(rows, number.item<int64_t>()); });
}

// First values of a shard, which are computed where they are wanted.
Tensor first_zeros(const Shape& shape, DType dtype, const PartitionInfo&) {
  return zeros(shape, dtype);
}
Tensor first_random(const Shape& shape, DType dtype, const PartitionInfo&) {
  return random_normal(shape, dtype) * 0.05;
}

/// The weights: on the servers, whoever asks for them first makes them.
struct Recommender {
  explicit Recommender(int64_t rows)
      : wide(first_zeros, {.name = "wide", .shape = Shape{rows, 1}, .dtype = kFloat32}),
        deep(first_random, {.name = "deep", .shape = Shape{rows, kWidth}, .dtype = kFloat32}) {
    tower(zeros({1, kWords * kWidth + kNumbers}));
  }
  Tensor logits(const Tensor& words, const Tensor& numbers) {
    const Tensor parts[] = {embedding_lookup(deep, words).flatten(1), numbers};
    return tower(concat(parts, 1)) + embedding_lookup(wide, words).sum(1);
  }
  std::vector<Variable> weights() const {
    const auto of_tower = tower.trainable_variables();
    std::vector<Variable> out(of_tower.begin(), of_tower.end());
    out.push_back(wide);
    out.push_back(deep);
    return out;
  }

  Variable wide;
  Variable deep;
  keras::Sequential tower{{keras::Dense(64, {.activation = "relu"}), keras::Dense(1)}};
  keras::Adam optimizer{{.learning_rate = 0.005}};
};

// What the workers run.

std::shared_ptr<Recommender> make_recommender(int64_t rows) {
  return std::make_shared<Recommender>(rows);
}
Dataset make_training_data(int64_t rows) {
  return batches_from(rows, (get_current_worker_index() + int64_t{1}) << 24);
}
Dataset make_held_out_data(int64_t rows) { return batches_from(rows, kHeldOut); }

double train_step(Recommender& model, DistributedIterator& data) {
  const auto step = [&](const Tensor& words, const Tensor& numbers, const Tensor& clicked) {
    GradientTape tape;
    const Tensor logits = model.logits(words, numbers);
    const Tensor loss = keras::BinaryCrossentropy({.from_logits = true})(clicked, logits);
    model.optimizer.apply_gradients(tape.gradient(loss, model.weights()));
    return loss.item<double>();
  };
  return get_strategy().run(step, *data.next());
}

/// Scores of a batch that nobody trains with, and who has clicked.
std::pair<Tensor, Tensor> score_step(Recommender& model, DistributedIterator& data) {
  const auto [words, numbers, clicked] = data.get_next().local().as<Tensor, Tensor, Tensor>();
  return {model.logits(words, numbers).detach().flatten(), clicked.flatten()};
}

COHORT_REGISTER_FUNCTION(make_recommender);
COHORT_REGISTER_FUNCTION(make_training_data);
COHORT_REGISTER_FUNCTION(make_held_out_data);
COHORT_REGISTER_FUNCTION(train_step);
COHORT_REGISTER_FUNCTION(score_step);

/// The probability that one who has clicked has a higher score than one who has not.
double auc(const std::vector<float>& scores, const std::vector<float>& clicked) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
  double below = 0;
  double above = 0;
  double pairs = 0;
  for (const std::size_t i : order) {
    (clicked[i] > 0 ? above : below) += 1;
    if (clicked[i] > 0) pairs += below;
  }
  return pairs / (above * below);
}

double held_out_auc(ClusterCoordinator& coordinator, const PerWorkerValues<Recommender>& models,
                    int64_t rows) {
  const auto data =
      coordinator.make_iterator(coordinator.create_per_worker_dataset(make_held_out_data, rows));
  std::vector<RemoteValue<std::pair<Tensor, Tensor>>> scored;
  for (int i = 0; i < 20; ++i) scored.push_back(coordinator.schedule(score_step, models, data));
  std::vector<float> scores;
  std::vector<float> clicked;
  for (const auto& [score, click] : coordinator.fetch(scored)) {
    for (const float each : to_vector<float>(score)) scores.push_back(each);
    for (const float each : to_vector<float>(click)) clicked.push_back(each);
  }
  return auc(scores, clicked);
}

void declare(examples::Flags& flags, Options& options) {
  flags.add("--rows", options.rows, "Words that there are", {.at_least = 1000});
  flags.add("--steps", options.steps, "Steps of all workers", {.at_least = 10});
}

int run(const Options& options) {
  const auto resolver = std::make_shared<TFConfigClusterResolver>();
  if (run_task(*resolver)) return 0;  // a worker or parameter server, whose job is over
  const ParameterServerStrategy strategy(
      {.cluster_resolver = resolver,
       .variable_partitioner = min_size_partitioner({.max_shards = 2})});
  ClusterCoordinator coordinator(strategy);
  const auto scope = strategy.scope();
  const auto here = make_recommender(options.rows);  // the weights, made once, by the chief
  const auto models = coordinator.create_per_worker_resource(make_recommender, options.rows);
  const auto data = coordinator.make_iterator(
      coordinator.create_per_worker_dataset(make_training_data, options.rows));

  const double first = held_out_auc(coordinator, models, options.rows);
  std::printf("before: AUC %.4f\n", first);
  double last = first;
  for (int done = 0; done < options.steps; done += options.steps / 5) {
    RemoteValue<double> loss;
    for (int i = 0; i < options.steps / 5; ++i) {
      loss = coordinator.schedule(train_step, models, data);
    }
    coordinator.join();
    last = held_out_auc(coordinator, models, options.rows);
    std::printf("step %d: loss %.4f, AUC %.4f\n", done + options.steps / 5, loss.get(), last);
  }
  std::printf("AUC %s from %.4f to %.4f\n", last > first ? "rose" : "fell", first, last);
  return last > first ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(
      argc, argv, "Trains a wide-and-deep recommender on parameter servers.", declare, run);
}
