// SPDX-License-Identifier: Apache-2.0
//
// The metrics of Keras 3. Here are weighted means of a value per example; the others stand in
// classification.h and functions.h.
//
//   keras::Mean train_loss("loss");
//   train_loss.update_state(per_example);
//   keras::SparseCategoricalAccuracy accuracy;
//   accuracy.update_state(labels, logits);
//
// Cost: 1 to 2 us for 32 x 10 scores of float32 or float64 on the CPU.
#pragma once

#include "cohort/keras/metrics/classification.h"  // IWYU pragma: export
#include "cohort/keras/metrics/functions.h"       // IWYU pragma: export
#include "cohort/keras/metrics/metric.h"          // IWYU pragma: export

namespace cohort::keras {

/// sum(values * weights) / sum(weights); 0 before the first value. Values of several axes count as
/// their mean over all but the first. TF: keras.metrics.Mean.
class Mean : public Metric {
 public:
  explicit Mean(std::string name = "mean");
  void update_state(const Tensor& values, const Tensor& sample_weight = {}) const;
  /// Adds to the mean's two sums, for loops that have computed their parts already.
  void add(double weighted_sum, double weight) const;
};

/// Sum of values * weights. TF: keras.metrics.Sum.
class Sum : public Metric {
 public:
  explicit Sum(std::string name = "sum");
  void update_state(const Tensor& values, const Tensor& sample_weight = {}) const;
};

/// How often y_true == y_pred. Shapes: equal, or [b] and [b, 1].
class Accuracy : public Metric {
 public:
  explicit Accuracy(std::string name = "accuracy");
};

/// How often y_true == (y_pred > threshold). Shapes: equal, or [b] and [b, 1].
class BinaryAccuracy : public Metric {
 public:
  explicit BinaryAccuracy(std::string name = "binary_accuracy", double threshold = 0.5);
};

/// How often the greatest of y_pred is where the greatest of y_true is. Shapes: [..., classes].
class CategoricalAccuracy : public Metric {
 public:
  explicit CategoricalAccuracy(std::string name = "categorical_accuracy");
};

/// How often the greatest of y_pred is at the class number y_true.
/// Shapes: y_true [...] or [..., 1], y_pred [..., classes].
class SparseCategoricalAccuracy : public Metric {
 public:
  explicit SparseCategoricalAccuracy(std::string name = "sparse_categorical_accuracy");
};

/// How often fewer than k scores are above that of the class where y_true is greatest.
class TopKCategoricalAccuracy : public Metric {
 public:
  explicit TopKCategoricalAccuracy(int k = 5, std::string name = "top_k_categorical_accuracy");
};

/// How often fewer than k scores are above that of class y_true; a class that does not exist and
/// a score that is not finite are misses.
class SparseTopKCategoricalAccuracy : public Metric {
 public:
  explicit SparseTopKCategoricalAccuracy(int k = 5,
                                         std::string name = "sparse_top_k_categorical_accuracy");
};

/// Those whose names are also names of losses. TF: keras.metrics.
namespace metrics {

/// mean((y_true - y_pred)^2). Shapes: equal, or [b] and [b, 1].
class MeanSquaredError : public Metric {
 public:
  explicit MeanSquaredError(std::string name = "mean_squared_error");
};

/// mean(|y_true - y_pred|). Shapes: equal, or [b] and [b, 1].
class MeanAbsoluteError : public Metric {
 public:
  explicit MeanAbsoluteError(std::string name = "mean_absolute_error");
};

}  // namespace metrics
}  // namespace cohort::keras
