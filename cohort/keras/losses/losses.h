// SPDX-License-Identifier: Apache-2.0
//
// The losses of Keras 3, with its formulas and defaults.
//
//   keras::SparseCategoricalCrossentropy loss({.from_logits = true});
//
// Cross entropies of float32 logits or probabilities on the CPU are one autograd node: the forward
// pass computes the gradient as well, backward hands it on. All else is LibTorch operations.
#pragma once

#include "cohort/keras/losses/loss.h"

namespace cohort::keras {

/// from_logits false: y_pred are probabilities. Over classes they are normalised to a sum of 1,
/// then all are clipped into [1e-7, 1 - 1e-7], and get no gradient where they are clipped.
struct CrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0;  ///< In [0, 1]: moves this share of each label to all classes.
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("from_logits", c.from_logits);
    f("label_smoothing", c.label_smoothing);
    f.constant("axis", -1);
  }
};

/// Labels are class numbers of any type.
/// Shapes: y_true [...] or [..., 1], y_pred [..., classes].
/// Errors: InvalidArgument for a label outside [0, classes) or not whole, with its value and row.
class SparseCategoricalCrossentropy : public Loss {
 public:
  explicit SparseCategoricalCrossentropy(CrossentropyOptions options = {});
};

/// Labels are distributions over the classes, e.g. one-hot. Shapes: both [..., classes].
class CategoricalCrossentropy : public Loss {
 public:
  explicit CategoricalCrossentropy(CrossentropyOptions options = {});
};

/// Labels are 0 or 1 (or between); the mean over the last axis. Shapes: equal, or [b] and [b, 1].
class BinaryCrossentropy : public Loss {
 public:
  explicit BinaryCrossentropy(CrossentropyOptions options = {});
};

struct LossOptions {
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = {};
  static void fields(auto&, auto&&) {}
};

/// mean((y_true - y_pred)^2) over the last axis. Shapes: equal, or [b] and [b, 1]; axes of 1
/// broadcast between equal ranks, as in Keras.
class MeanSquaredError : public Loss {
 public:
  explicit MeanSquaredError(LossOptions options = {});
};

/// mean(|y_true - y_pred|) over the last axis. Shapes: as MeanSquaredError.
class MeanAbsoluteError : public Loss {
 public:
  explicit MeanAbsoluteError(LossOptions options = {});
};

struct HuberOptions {
  double delta = 1.0;  ///< Where the square ends and the line begins.
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = {};
  static void fields(auto& c, auto&& f) { f.extra("delta", c.delta, 1.0); }
};

/// Squared for small errors, linear for large ones; the mean over the last axis.
class Huber : public Loss {
 public:
  explicit Huber(HuberOptions options = {});
};

}  // namespace cohort::keras
