// SPDX-License-Identifier: Apache-2.0
//
// The two sums behind every mean, as variables that a hot loop adds numbers to.
#pragma once

#include "cohort/keras/metrics/metric.h"

namespace cohort::keras::internal {

/// Base of the metrics that are a weighted mean of values.
class MeanMetric : public MetricBase {
 public:
  explicit MeanMetric(std::string name);
  Tensor result() override;
  bool heeds_masks() const override { return true; }

  /// To the calling replica's sums. Cost: about 20 ns, or two launches.
  void add(double weighted_sum, double weight);
  /// Whether the calling replica's sums are a device's, where update_state has nothing to read.
  bool is_on_device() const;
  /// Values as Keras reduces them: weights broadcast, all axes but the first are averaged.
  /// Errors: InvalidArgument for weights that do not fit.
  void add_values(const Tensor& values, const Tensor& sample_weight);

 private:
  Variable total_;
  Variable count_;
};

struct WeightedSum {
  double sum = 0;
  double weight = 0;
};
/// Keras's reduce_to_samplewise_values, summed. An undefined weight counts every example as 1.
WeightedSum weighted_sum(const std::string& metric, const Tensor& values,
                         const Tensor& sample_weight);

/// Adds to the calling replica's float64 scalar.
void add_to(const Variable& variable, double x);
/// The same of a scalar tensor, which is read only if the variable is the host's.
void add_to(const Variable& variable, const Tensor& x);
/// The calling replica's float64 scalar, or the sum of all in cross-replica context.
/// Blocks: until the devices that have it are as far.
double read_sum(const Variable& variable);
/// Whether the calling replica's component is a device's.
bool is_on_device(const Variable& variable);

}  // namespace cohort::keras::internal
