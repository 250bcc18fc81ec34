// SPDX-License-Identifier: Apache-2.0
//
// The wide-and-deep recommender that ps_peers_bench trains here and in TensorFlow: the same first
// weights, by a hash that peers/tensorflow_ps_peer.py computes, too, and batches of one file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cohort/cohort.h"

namespace cohort::bench {

inline constexpr int64_t kWords = 26;
inline constexpr int64_t kNumbers = 13;
inline constexpr int64_t kRecommenderRows = 1'000'000;
inline constexpr int64_t kRecommenderWidth = 16;
inline constexpr int64_t kRecommenderBatch = 256;
inline constexpr int64_t kHidden = 64;
/// The last one is not trained with.
inline constexpr int64_t kBatches = 200;

/// Writes all words (int64), then all numbers, then who has clicked (float32), batch after batch.
/// Errors: FailedPrecondition where it cannot.
void write_impressions(const std::string& path);

/// words [batches, 256, 26], numbers [.., 13], clicked [.., 1] of such a file.
/// Errors: FailedPrecondition where it cannot be read.
std::tuple<Tensor, Tensor, Tensor> read_impressions(const std::string& path);

/// The weights, on the servers, by Adagrad, whose update of some rows is the dense one.
struct Recommender {
  Recommender();
  Tensor loss(const Tensor& words, const Tensor& numbers, const Tensor& clicked) const;
  void train(const Tensor& words, const Tensor& numbers, const Tensor& clicked, double& loss_of);

  Variable wide, deep;
  Variable kernel, bias, last_kernel, last_bias;
  keras::Adagrad optimizer{{.learning_rate = 0.05}};
};

/// Cuts the recommender's tables into two, and nothing else.
Partitioner recommender_partitioner();

}  // namespace cohort::bench
