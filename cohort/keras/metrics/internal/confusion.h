// SPDX-License-Identifier: Apache-2.0
//
// Weighted counts of a confusion matrix at several thresholds, for the metrics that are made of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/internal/device_constant.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// How predictions are told apart, as Keras does it.
struct ConfusionRule {
  std::vector<double> thresholds;          ///< A prediction above one is positive.
  bool evenly = false;                     ///< They divide [0, 1] evenly.
  bool first_below_zero = false;           ///< A prediction of 0 is above the first one.
  std::optional<int64_t> top_k = {};       ///< Only the k greatest of a row may be positive.
  std::optional<int64_t> class_id = {};    ///< Only this column.
  bool per_label = false;                  ///< Count columns apart. Shapes: [b, labels].
  std::vector<double> label_weights = {};  ///< Of the columns.
};

/// Whether thresholds divide [0, 1] evenly. TF: is_evenly_distributed_thresholds.
bool divide_evenly(const std::vector<double>& thresholds);

/// Sums of weights. Each [threshold * labels + label]; labels is 1 unless they are counted apart.
struct ConfusionCounts {
  std::vector<double> true_positives, false_positives, true_negatives, false_negatives;
};

/// Counts a batch. Targets are positive where they are not 0. Predictions are compared in float32.
/// Errors: InvalidArgument that starts with "[metric.update_state]" for shapes that do not fit.
/// Cost: one pass over the predictions and one over the thresholds.
ConfusionCounts count_confusion(const std::string& metric, const ConfusionRule& rule,
                                const Tensor& y_true, const Tensor& y_pred,
                                const Tensor& sample_weight);

/// ConfusionCounts of a device. Shapes: [threshold, label].
struct DeviceConfusion {
  Tensor true_positives, false_positives, true_negatives, false_negatives;
  const Tensor& of(std::vector<double> ConfusionCounts::*member) const;
};

/// Counts where the predictions are: a histogram, of which nobody reads anything.
/// Threads: thread-safe.
class DeviceCounter {
 public:
  /// As count_confusion, always for the same rule. Order: float64 sums of weights are added in an
  /// order that may differ from run to run; sums of ones are exact.
  DeviceConfusion count(const std::string& metric, const ConfusionRule& rule, const Tensor& y_true,
                        const Tensor& y_pred, const Tensor& sample_weight);

 private:
  Tensor level_of(const ConfusionRule& rule, const Tensor& predictions);

  DeviceConstant thresholds_, places_, label_weights_;
};

}  // namespace cohort::keras::internal
