// SPDX-License-Identifier: Apache-2.0
//
// One pass over float32 scores: per-example losses, their weighted sum, and the gradient of it.
#pragma once

#include <cstdint>

namespace cohort::keras::internal {

/// Row-major [rows, classes]. All but `scores` of a row counts as independent of the others.
struct CrossEntropyRows {
  int64_t rows = 0;
  int64_t classes = 0;
  const float* scores = nullptr;
  const int64_t* labels = nullptr;  ///< Class numbers, checked; or
  const float* targets = nullptr;   ///< [rows, classes].
  double smoothing = 0;             ///< Of labels or targets, in [0, 1].
  const float* weights = nullptr;   ///< Per row; null: 1.
  double scale = 1;                 ///< Times every weight.
  float* losses = nullptr;          ///< Unweighted, per row; null: not wanted.
  float* gradient = nullptr;        ///< d sum / d scores.
  bool wants_gradient = true;       ///< false: `gradient` is only working memory.
};

/// Each returns the sum over rows of scale * weight * loss, added in row order.
/// Threads: functions of their arguments. Blocks: never.
double softmax_cross_entropy(const CrossEntropyRows& rows);
double probability_cross_entropy(const CrossEntropyRows& rows);
double sigmoid_cross_entropy(const CrossEntropyRows& rows);       ///< `targets` only.
double binary_probability_entropy(const CrossEntropyRows& rows);  ///< `targets` only.

/// out[i] = exp(in[i]) for in <= 0, within 2 units in the last place; below -87.3 it is 0.
void exp_of_negatives(float* values, int64_t n);

}  // namespace cohort::keras::internal
