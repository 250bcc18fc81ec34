// SPDX-License-Identifier: Apache-2.0
//
// Metrics of classes: counts of a confusion matrix and what is made of them. Keras 3's formulas.
//
//   keras::AUC auc({.curve = "PR"});
//   keras::Precision precision({.thresholds = {0.3, 0.5, 0.7}});     // its result has 3 values
//   keras::F1Score f1({.average = "macro"});
//
// Predictions are probabilities; one above a threshold is positive. Targets are positive where they
// are not 0. Shapes: equal, or [b] and [b, 1]; sample weights [b] or broadcasting.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/metrics/metric.h"

namespace cohort::keras {

/// None, one, or several, in [0, 1]. With several a metric has as many results.
struct Thresholds {
  std::vector<double> values = {};
  bool is_list = false;
  Thresholds() = default;
  Thresholds(double threshold) : values{threshold} {}  // NOLINT: implicit by design, as the next
  Thresholds(std::initializer_list<double> thresholds) : values(thresholds), is_list(true) {}
  Thresholds(std::vector<double> thresholds) : values(std::move(thresholds)), is_list(true) {}
  bool operator==(const Thresholds&) const = default;
};
template <>
struct ConfigValue<Thresholds> {
  static Config write(const Thresholds& thresholds);
  static Thresholds read(const Config& config);
};

/// A number for each label; empty: 1.
struct LabelWeights {
  std::vector<double> values = {};
  LabelWeights() = default;
  LabelWeights(std::initializer_list<double> weights) : values(weights) {}   // NOLINT: implicit
  LabelWeights(std::vector<double> weights) : values(std::move(weights)) {}  // NOLINT
  bool operator==(const LabelWeights&) const = default;
};
template <>
struct ConfigValue<LabelWeights> {
  static Config write(const LabelWeights& weights);
  static LabelWeights read(const Config& config);
};

// Errors, of all: InvalidArgument for thresholds outside [0, 1].

struct CountOptions {
  Thresholds thresholds = {};  ///< None: 0.5.
  std::string name = {};
  MetricDType dtype = {};
  static void fields(auto& c, auto&& f) { f("thresholds", c.thresholds); }
};
class TruePositives : public Metric {
 public:
  explicit TruePositives(CountOptions options = {});
};
class TrueNegatives : public Metric {
 public:
  explicit TrueNegatives(CountOptions options = {});
};
class FalsePositives : public Metric {
 public:
  explicit FalsePositives(CountOptions options = {});
};
class FalseNegatives : public Metric {
 public:
  explicit FalseNegatives(CountOptions options = {});
};

struct PrecisionOptions {
  Thresholds thresholds = {};            ///< None: 0.5, or none at all with top_k.
  std::optional<int64_t> top_k = {};     ///< Only the k greatest of a row may be positive.
  std::optional<int64_t> class_id = {};  ///< Only this column.
  std::string name = {};
  MetricDType dtype = {};
  static void fields(auto& c, auto&& f) {
    f("thresholds", c.thresholds);
    f("top_k", c.top_k);
    f("class_id", c.class_id);
  }
};
using RecallOptions = PrecisionOptions;
/// True positives / predicted positives; 0 if there are none.
class Precision : public Metric {
 public:
  explicit Precision(PrecisionOptions options = {});
};
/// True positives / actual positives; 0 if there are none.
class Recall : public Metric {
 public:
  explicit Recall(RecallOptions options = {});
};

struct AtOptions {
  int64_t num_thresholds = 200;  ///< Evenly over [0, 1]; 1: 0.5 alone.
  std::optional<int64_t> class_id = {};
  std::string name = {};
  MetricDType dtype = {};
};
/// The best sensitivity (recall of the positives) at the thresholds where the specificity (recall
/// of the negatives) is at least so much; 0 if there is none. The next three likewise.
/// Errors: InvalidArgument for a bound outside [0, 1].
class SensitivityAtSpecificity : public Metric {
 public:
  explicit SensitivityAtSpecificity(double specificity, AtOptions options = {});
};
class SpecificityAtSensitivity : public Metric {
 public:
  explicit SpecificityAtSensitivity(double sensitivity, AtOptions options = {});
};
class PrecisionAtRecall : public Metric {
 public:
  explicit PrecisionAtRecall(double recall, AtOptions options = {});
};
class RecallAtPrecision : public Metric {
 public:
  explicit RecallAtPrecision(double precision, AtOptions options = {});
};

struct AUCOptions {
  int64_t num_thresholds = 200;                        ///< Evenly over [0, 1].
  std::string curve = "ROC";                           ///< "ROC", "PR" or "PRGAIN".
  std::string summation_method = "interpolation";      ///< "interpolation", "minoring", "majoring".
  std::optional<std::vector<double>> thresholds = {};  ///< Between 0 and 1, instead of even ones.
  bool multi_label = false;                ///< Columns apart, then their mean. Shapes: [b, labels].
  std::optional<int64_t> num_labels = {};  ///< Else as many as the first predictions have columns.
  LabelWeights label_weights = {};
  bool from_logits = false;  ///< Predictions go through a sigmoid first.
  std::string name = {};
  MetricDType dtype = {};
  static void fields(auto& c, auto&& f) {
    f("num_thresholds", c.num_thresholds);
    f("curve", c.curve);
    f("summation_method", c.summation_method);
    f("multi_label", c.multi_label);
    f("num_labels", c.num_labels);
    f("label_weights", c.label_weights);
    f("from_logits", c.from_logits);
    f.extra("thresholds", c.thresholds, std::nullopt);
  }
};
/// The area under a curve, by Riemann sums over thresholds. Columns count together unless
/// multi_label.
class AUC : public Metric {
 public:
  explicit AUC(AUCOptions options = {});
};

struct F1ScoreOptions {
  std::optional<std::string> average = {};  ///< None: one for each class; "micro": all together;
                                            ///< "macro": their mean; "weighted": by their number.
  std::optional<double> threshold = {};     ///< In (0, 1]; none: the greatest of a row is positive.
  std::string name = {};
  MetricDType dtype = {};
  static void fields(auto& c, auto&& f) {
    f("average", c.average);
    f("threshold", c.threshold);
  }
};
/// Shapes: [b, classes], targets one-hot or several.
class F1Score : public Metric {
 public:
  explicit F1Score(F1ScoreOptions options = {});
};
struct FBetaScoreOptions {
  std::optional<std::string> average = {};
  double beta = 1;  ///< How much more recall counts than precision.
  std::optional<double> threshold = {};
  std::string name = {};
  MetricDType dtype = {};
  static void fields(auto& c, auto&& f) {
    f("average", c.average);
    f("beta", c.beta);
    f("threshold", c.threshold);
  }
};
class FBetaScore : public Metric {
 public:
  explicit FBetaScore(FBetaScoreOptions options = {});
};

// Intersection over union of classes: what is both, over what is either. Of class numbers, or of
// scores with sparse false. Class numbers outside [0, num_classes) are left out. With a whole
// dtype, as by default, sample weights are truncated to integers, as in Keras.

struct IoUOptions {
  std::optional<int64_t> ignore_class = {};  ///< Of targets.
  bool sparse_y_true = true;
  bool sparse_y_pred = true;
  int64_t axis = -1;  ///< Of the classes, where not sparse.
  std::string name = {};
  MetricDType dtype = "int64";
};
/// The mean over some classes, those that do not occur left out.
class IoU : public Metric {
 public:
  explicit IoU(int64_t num_classes, std::vector<int64_t> target_class_ids, IoUOptions options = {});
};
class MeanIoU : public Metric {
 public:
  explicit MeanIoU(int64_t num_classes, IoUOptions options = {});
};
struct BinaryIoUOptions {
  std::vector<int64_t> target_class_ids = {0, 1};
  double threshold = 0.5;  ///< Predictions of at least so much are class 1.
  std::string name = {};
  MetricDType dtype = "int64";
  static void fields(auto& c, auto&& f) {
    f("target_class_ids", c.target_class_ids);
    f("threshold", c.threshold);
  }
};
class BinaryIoU : public Metric {
 public:
  explicit BinaryIoU(BinaryIoUOptions options = {});
};
struct OneHotIoUOptions {
  std::optional<int64_t> ignore_class = {};
  bool sparse_y_pred = false;
  int64_t axis = -1;
  std::string name = {};
  MetricDType dtype = "int64";
};
class OneHotIoU : public Metric {
 public:
  explicit OneHotIoU(int64_t num_classes, std::vector<int64_t> target_class_ids,
                     OneHotIoUOptions options = {});
};
class OneHotMeanIoU : public Metric {
 public:
  explicit OneHotMeanIoU(int64_t num_classes, OneHotIoUOptions options = {});
};

}  // namespace cohort::keras
