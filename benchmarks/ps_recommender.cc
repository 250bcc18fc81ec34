// SPDX-License-Identifier: Apache-2.0
#include "ps_recommender.h"

#include <cmath>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "cohort/base/check.h"

namespace cohort::bench {
namespace {

constexpr std::size_t kRowsOfAll = kBatches * kRecommenderBatch;

// Number i of all first weights of a variable: in [-scale / 2, scale / 2).
float first_weight(std::uint32_t i, std::uint32_t seed, double scale) {
  std::uint32_t mixed = i + seed * 0x9e3779b9U;
  mixed = (mixed ^ (mixed >> 16)) * 0x85ebca6bU;
  mixed = (mixed ^ (mixed >> 13)) * 0xc2b2ae35U;
  mixed ^= mixed >> 16;
  return static_cast<float>((mixed / 4294967296.0 - 0.5) * scale);
}

Variable weights(const char* name, const Shape& shape, std::uint32_t seed, double scale) {
  const auto make = [=](const Shape& part, DType, const PartitionInfo& of) {
    const std::int64_t size =
        std::accumulate(part.begin(), part.end(), std::int64_t{1}, std::multiplies<>());
    const std::int64_t first = of.offset.empty() ? 0 : of.offset[0] * (size / part[0]);
    std::vector<float> out(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto number = static_cast<std::uint32_t>(first + static_cast<std::int64_t>(i));
      out[i] = first_weight(number, seed, scale);
    }
    return from_vector(out, part);
  };
  return Variable(make, {.name = name, .shape = shape, .dtype = kFloat32});
}

/// What a word is worth: a number in [-1, 1] that the model has to find.
double worth(std::int64_t word) { return first_weight(static_cast<std::uint32_t>(word), 99, 2); }

template <class T>
void put(std::ofstream& file, const std::vector<T>& all) {
  file.write(reinterpret_cast<const char*>(all.data()),
             static_cast<std::streamsize>(all.size() * sizeof(T)));
}

template <class T>
Tensor take(std::ifstream& file, std::int64_t columns) {
  std::vector<T> all(kRowsOfAll * static_cast<std::size_t>(columns));
  file.read(reinterpret_cast<char*>(all.data()),
            static_cast<std::streamsize>(all.size() * sizeof(T)));
  return from_vector(all, {kBatches, kRecommenderBatch, columns});
}

}  // namespace

void write_impressions(const std::string& path) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform;
  constexpr std::int64_t kOfEach = kRecommenderRows / kWords;
  std::vector<std::int64_t> words;
  std::vector<float> numbers, clicked;
  for (std::size_t row = 0; row < kRowsOfAll; ++row) {
    double score = -0.5;
    for (std::int64_t f = 0; f < kWords; ++f) {  // Zipf's law
      const double rank = std::pow(static_cast<double>(kOfEach), uniform(random)) - 1;
      words.push_back(f * kOfEach + static_cast<std::int64_t>(rank));
      score += 0.8 * worth(words.back());
    }
    for (std::int64_t n = 0; n < kNumbers; ++n) {
      numbers.push_back(static_cast<float>(uniform(random) - 0.5));
      score += (n % 2 == 0 ? 0.5 : -0.5) * numbers.back();
    }
    clicked.push_back(uniform(random) < 1 / (1 + std::exp(-score)) ? 1.0F : 0.0F);
  }
  std::ofstream file(path, std::ios::binary);
  put(file, words);
  put(file, numbers);
  put(file, clicked);
  COHORT_CHECK_STATE(file.flush(), "[ps_peers_bench] cannot write ", path);
}

std::tuple<Tensor, Tensor, Tensor> read_impressions(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const Tensor words = take<std::int64_t>(file, kWords);
  const Tensor numbers = take<float>(file, kNumbers);
  const Tensor clicked = take<float>(file, 1);
  COHORT_CHECK_STATE(file, "[ps_peers_bench] cannot read ", path);
  return {words, numbers, clicked};
}

Recommender::Recommender()
    : wide(weights("wide", {kRecommenderRows, 1}, 1, 0)),
      deep(weights("deep", {kRecommenderRows, kRecommenderWidth}, 2, 0.1)),
      kernel(weights("kernel", {kWords * kRecommenderWidth + kNumbers, kHidden}, 3, 0.2)),
      bias(weights("bias", {kHidden}, 4, 0)),
      last_kernel(weights("last_kernel", {kHidden, 1}, 5, 0.5)),
      last_bias(weights("last_bias", {1}, 6, 0)) {}

Tensor Recommender::loss(const Tensor& words, const Tensor& numbers, const Tensor& clicked) const {
  const Tensor parts[] = {embedding_lookup(deep, words).flatten(1), numbers};
  const Tensor hidden = (concat(parts, 1).matmul(kernel) + bias.value()).relu();
  const Tensor logits =
      hidden.matmul(last_kernel) + last_bias.value() + embedding_lookup(wide, words).sum(1);
  return keras::BinaryCrossentropy({.from_logits = true})(clicked, logits);
}

void Recommender::train(const Tensor& words, const Tensor& numbers, const Tensor& clicked,
                        double& loss_of) {
  GradientTape tape;
  const Tensor value = loss(words, numbers, clicked);
  const std::vector<Variable> all = {wide, deep, kernel, bias, last_kernel, last_bias};
  optimizer.apply_gradients(tape.gradient(value, all));
  loss_of = value.item<double>();
}

Partitioner recommender_partitioner() {
  return [](const Shape& shape, DType) {
    std::vector<int64_t> parts(shape.size(), 1);
    const bool is_table = shape.size() == 2 && shape[0] == kRecommenderRows;
    if (is_table && shape[1] <= kRecommenderWidth) parts[0] = 2;
    return parts;
  };
}

}  // namespace cohort::bench
