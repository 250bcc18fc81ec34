// SPDX-License-Identifier: Apache-2.0
//
// Metrics that are the mean of a function of targets and predictions, or made of their sums.
//
//   keras::MeanMetricWrapper gap([](const Tensor& y, const Tensor& p) { return (y - p).amax(-1); },
//                                "gap");
//   keras::metrics::BinaryCrossentropy entropy({.from_logits = true});
//   keras::R2Score r2;
//
// The functions of losses stand in losses/functions.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cohort/keras/metrics/metric.h"

namespace cohort::keras {

/// The mean of a function's values per example, which is made at once; a plain function in
/// compile() makes one, too, in the model's scope. TF: keras.metrics.MeanMetricWrapper.
class MeanMetricWrapper : public Metric {
 public:
  /// `direction` is for callbacks that watch it. The function gets ranks made equal where they
  /// differ by a trailing axis of 1.
  explicit MeanMetricWrapper(std::function<Tensor(const Tensor&, const Tensor&)> function,
                             std::string name = "mean_metric_wrapper",
                             Direction direction = Direction::kUnknown);
};

/// The root of the mean of all squares.
class RootMeanSquaredError : public Metric {
 public:
  explicit RootMeanSquaredError(std::string name = "root_mean_squared_error");
};
class LogCoshError : public Metric {
 public:
  explicit LogCoshError(std::string name = "logcosh");
};

struct AxisMetricOptions {
  int64_t axis = -1;
  std::string name = {};
  MetricDType dtype = {};
  static void fields(auto& c, auto&& f) { f("axis", c.axis); }
};
/// Of each row, then their mean.
class PearsonCorrelation : public Metric {
 public:
  explicit PearsonCorrelation(AxisMetricOptions options = {});
};
/// Keras 3's formula (its covariance takes both from the mean of the predictions).
class ConcordanceCorrelation : public Metric {
 public:
  explicit ConcordanceCorrelation(AxisMetricOptions options = {});
};

struct R2ScoreOptions {
  std::optional<std::string> class_aggregation =
      "uniform_average";       ///< "variance_weighted_average";
                               ///< none: one per column.
  int64_t num_regressors = 0;  ///< Above 0: the adjusted score.
  std::string name = {};
  MetricDType dtype = {};
  static void fields(auto& c, auto&& f) {
    f("class_aggregation", c.class_aggregation);
    f("num_regressors", c.num_regressors);
  }
};
/// Shapes: [b, outputs].
class R2Score : public Metric {
 public:
  explicit R2Score(R2ScoreOptions options = {});
};

/// Those whose names are also names of losses. TF: keras.metrics.
namespace metrics {

class MeanAbsolutePercentageError : public Metric {
 public:
  explicit MeanAbsolutePercentageError(std::string name = "mean_absolute_percentage_error");
};
class MeanSquaredLogarithmicError : public Metric {
 public:
  explicit MeanSquaredLogarithmicError(std::string name = "mean_squared_logarithmic_error");
};
class KLDivergence : public Metric {
 public:
  explicit KLDivergence(std::string name = "kl_divergence");
};
class Poisson : public Metric {
 public:
  explicit Poisson(std::string name = "poisson");
};
class Hinge : public Metric {
 public:
  explicit Hinge(std::string name = "hinge");
};
class SquaredHinge : public Metric {
 public:
  explicit SquaredHinge(std::string name = "squared_hinge");
};
class CategoricalHinge : public Metric {
 public:
  explicit CategoricalHinge(std::string name = "categorical_hinge");
};

struct CosineSimilarityOptions {
  int64_t axis = -1;
  std::string name = {};
  MetricDType dtype = {};
  static void fields(auto& c, auto&& f) { f.extra("axis", c.axis, -1); }
};
/// 1: the same direction, -1: the opposite one. (The loss has the other sign.)
class CosineSimilarity : public Metric {
 public:
  explicit CosineSimilarity(CosineSimilarityOptions options = {});
};

struct BinaryCrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0;
  std::string name = {};
  MetricDType dtype = {};
  static void fields(auto& c, auto&& f) {
    f("from_logits", c.from_logits);
    f("label_smoothing", c.label_smoothing);
  }
};
class BinaryCrossentropy : public Metric {
 public:
  explicit BinaryCrossentropy(BinaryCrossentropyOptions options = {});
};
struct CategoricalCrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0;
  std::string name = {};
  MetricDType dtype = {};
  static void fields(auto& c, auto&& f) {
    f("from_logits", c.from_logits);
    f("label_smoothing", c.label_smoothing);
    f.constant("axis", -1);
  }
};
class CategoricalCrossentropy : public Metric {
 public:
  explicit CategoricalCrossentropy(CategoricalCrossentropyOptions options = {});
};
struct SparseCategoricalCrossentropyOptions {
  bool from_logits = false;
  std::optional<int64_t> ignore_class = {};
  std::string name = {};
  MetricDType dtype = {};
  static void fields(auto& c, auto&& f) {
    f("from_logits", c.from_logits);
    f("ignore_class", c.ignore_class);
    f.constant("axis", -1);
  }
};
/// As Keras: rows with the ignored label count as 0, and only with sample weights not at all.
class SparseCategoricalCrossentropy : public Metric {
 public:
  explicit SparseCategoricalCrossentropy(SparseCategoricalCrossentropyOptions options = {});
};

}  // namespace metrics
}  // namespace cohort::keras
