// SPDX-License-Identifier: Apache-2.0
//
// Normalisation, with the names, options and defaults of Keras 3.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/keras/layer.h"

namespace cohort::keras {

struct BatchNormalizationOptions {
  int64_t axis = -1;  ///< Of the features: the last, or 1 for channels first.
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  Initializer beta_initializer = "zeros";
  Initializer gamma_initializer = "ones";
  Initializer moving_mean_initializer = "zeros";
  Initializer moving_variance_initializer = "ones";
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  /// Statistics over the batches of all replicas. Not there yet: true throws Unimplemented.
  bool synchronized = false;
  std::optional<DType> dtype = {};
  std::string name = {};
};

/// (x - mean) / sqrt(variance + epsilon) * gamma + beta, over all axes but `axis`: statistics of
/// this replica's batch while training (and not frozen), else the moving ones.
/// The moving statistics are kOnRead and kMean: replicas keep their own, a read averages them.
/// An empty batch leaves them alone, and so does a step that fails: what a run has moved since its
/// last update of weights is put back if the run throws. TF: keras.layers.BatchNormalization.
class BatchNormalization : public Layer {
 public:
  explicit BatchNormalization(BatchNormalizationOptions options = {});
};

}  // namespace cohort::keras
