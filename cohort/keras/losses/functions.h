// SPDX-License-Identifier: Apache-2.0
//
// The losses as functions of targets and predictions, with a value for each example: Keras's
// keras.losses.mean_squared_error and its like. The classes in losses.h reduce them.
//
//   Tensor per_row = keras::losses::kl_divergence(y_true, y_pred);
//   keras::losses::cosine_similarity(y_true, y_pred, /*axis=*/1);
//
// Targets take the type of the predictions. Ranks that differ by a trailing axis of 1 are made
// equal, axes of 1 broadcast between equal ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/runtime/tensor.h"

namespace cohort::keras {

/// Axes to sum over; empty: all. TF: an axis that is None, a number or a list.
using Axes = std::vector<int64_t>;

namespace losses {

// Errors, of all: InvalidArgument for shapes that do not fit.

/// Means over the last axis.
Tensor mean_squared_error(const Tensor& y_true, const Tensor& y_pred);
Tensor mean_absolute_error(const Tensor& y_true, const Tensor& y_pred);
/// In percent of |y_true|, which counts as 1e-7 at least.
Tensor mean_absolute_percentage_error(const Tensor& y_true, const Tensor& y_pred);
/// Of log(1 + x), where x counts as 1e-7 at least.
Tensor mean_squared_logarithmic_error(const Tensor& y_true, const Tensor& y_pred);
Tensor huber(const Tensor& y_true, const Tensor& y_pred, double delta = 1);
Tensor log_cosh(const Tensor& y_true, const Tensor& y_pred);
Tensor poisson(const Tensor& y_true, const Tensor& y_pred);
/// Labels are -1 and 1; if all are 0 or 1, then 0 means -1.
Tensor hinge(const Tensor& y_true, const Tensor& y_pred);
Tensor squared_hinge(const Tensor& y_true, const Tensor& y_pred);
Tensor binary_crossentropy(const Tensor& y_true, const Tensor& y_pred, bool from_logits = false,
                           double label_smoothing = 0);

/// Sums over the last axis.
Tensor kl_divergence(const Tensor& y_true, const Tensor& y_pred);
/// max(0, 1 + the greatest of the wrong scores - the right one). Labels are one-hot.
Tensor categorical_hinge(const Tensor& y_true, const Tensor& y_pred);
Tensor categorical_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                bool from_logits = false, double label_smoothing = 0);
/// -1: the same direction, 1: the opposite one.
Tensor cosine_similarity(const Tensor& y_true, const Tensor& y_pred, int64_t axis = -1);

struct BinaryFocalNumbers {
  bool apply_class_balancing = false;  ///< Weigh 1 by alpha and 0 by 1 - alpha.
  double alpha = 0.25;
  double gamma = 2;
  bool from_logits = false;
  double label_smoothing = 0;
  int64_t axis = -1;
};
/// Cross entropy times (1 - the probability of the label)^gamma.
Tensor binary_focal_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                 const BinaryFocalNumbers& numbers = {});

struct CategoricalFocalNumbers {
  double alpha = 0.25;
  double gamma = 2;
  bool from_logits = false;
  double label_smoothing = 0;
  int64_t axis = -1;
};
Tensor categorical_focal_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                      const CategoricalFocalNumbers& numbers = {});

// The next take class numbers. Shapes: y_true [...] or [..., 1], y_pred [..., classes].

Tensor sparse_categorical_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                       bool from_logits = false);
/// (1 - p^q) / q of the label's probability p: q towards 0 is cross entropy, 1 the absolute error.
Tensor categorical_generalized_cross_entropy(const Tensor& y_true, const Tensor& y_pred,
                                             double q = 0.5);

// The next have one value for what is summed over, of the whole batch where axes are empty.

/// 1 - 2 |both| / (|true| + |pred|).
Tensor dice(const Tensor& y_true, const Tensor& y_pred, const Axes& axes = {});
/// Dice with weights: alpha of false negatives, beta of false positives, by Keras's formula (whose
/// documentation says it the other way round).
Tensor tversky(const Tensor& y_true, const Tensor& y_pred, double alpha = 0.5, double beta = 0.5,
               const Axes& axes = {});

/// Of embeddings of length 1: similar where labels are equal.
/// Shapes: y_true [b] or [b, 1], whole numbers; y_pred [b, d]; the result is [b].
Tensor circle(const Tensor& y_true, const Tensor& y_pred, bool remove_diagonal = true,
              double gamma = 80, double margin = 0.4);

/// -log of the probability of a sequence of labels, of all ways to say it; 0 is the blank, and what
/// fills up rows of y_true. Shapes: y_true [b, labels], y_pred [b, steps, classes], logits.
Tensor ctc(const Tensor& y_true, const Tensor& y_pred);

}  // namespace losses
}  // namespace cohort::keras
