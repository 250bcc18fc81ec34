// SPDX-License-Identifier: Apache-2.0
//
// The losses of Keras 3, with its formulas and defaults.
//
//   keras::SparseCategoricalCrossentropy loss({.from_logits = true});
//
// Cross entropies of float32 logits or probabilities on the CPU are one autograd node: the forward
// pass computes the gradient as well, backward hands it on. All else is LibTorch operations.
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>

#include "cohort/keras/losses/functions.h"
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

struct SparseCategoricalCrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0;
  std::optional<int64_t> ignore_class = {};  ///< Rows with this label are not in the loss.
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("from_logits", c.from_logits);
    f.extra("label_smoothing", c.label_smoothing, 0.0);
    f("ignore_class", c.ignore_class);
    f.newer("axis", -1);
  }
};

/// Labels are class numbers of any type.
/// Shapes: y_true [...] or [..., 1], y_pred [..., classes].
/// Errors: InvalidArgument for a label outside [0, classes) or not whole, with its value and row.
class SparseCategoricalCrossentropy : public Loss {
 public:
  explicit SparseCategoricalCrossentropy(SparseCategoricalCrossentropyOptions options = {});
  /// With the options of the other cross entropies.
  template <std::same_as<CrossentropyOptions> O>
  explicit SparseCategoricalCrossentropy(const O& o)
      : SparseCategoricalCrossentropy(
            {o.from_logits, o.label_smoothing, std::nullopt, o.reduction, o.name}) {}
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

// The next ones compute the functions of the same names in functions.h.

class MeanAbsolutePercentageError : public Loss {
 public:
  explicit MeanAbsolutePercentageError(LossOptions options = {});
};
class MeanSquaredLogarithmicError : public Loss {
 public:
  explicit MeanSquaredLogarithmicError(LossOptions options = {});
};
class LogCosh : public Loss {
 public:
  explicit LogCosh(LossOptions options = {});
};
class Poisson : public Loss {
 public:
  explicit Poisson(LossOptions options = {});
};
class KLDivergence : public Loss {
 public:
  explicit KLDivergence(LossOptions options = {});
};
class Hinge : public Loss {
 public:
  explicit Hinge(LossOptions options = {});
};
class SquaredHinge : public Loss {
 public:
  explicit SquaredHinge(LossOptions options = {});
};
class CategoricalHinge : public Loss {
 public:
  explicit CategoricalHinge(LossOptions options = {});
};
class CTC : public Loss {
 public:
  explicit CTC(LossOptions options = {});
};

struct CosineSimilarityOptions {
  int64_t axis = -1;
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = {};
  static void fields(auto& c, auto&& f) { f.extra("axis", c.axis, -1); }
};
class CosineSimilarity : public Loss {
 public:
  explicit CosineSimilarity(CosineSimilarityOptions options = {});
};

struct BinaryFocalCrossentropyOptions {
  bool apply_class_balancing = false;
  double alpha = 0.25;
  double gamma = 2;
  bool from_logits = false;
  double label_smoothing = 0;
  int64_t axis = -1;
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("from_logits", c.from_logits);
    f("label_smoothing", c.label_smoothing);
    f("axis", c.axis);
    f("apply_class_balancing", c.apply_class_balancing);
    f("alpha", c.alpha);
    f("gamma", c.gamma);
  }
};
class BinaryFocalCrossentropy : public Loss {
 public:
  explicit BinaryFocalCrossentropy(BinaryFocalCrossentropyOptions options = {});
};

struct CategoricalFocalCrossentropyOptions {
  double alpha = 0.25;
  double gamma = 2;
  bool from_logits = false;
  double label_smoothing = 0;
  int64_t axis = -1;
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("from_logits", c.from_logits);
    f("label_smoothing", c.label_smoothing);
    f("axis", c.axis);
    f("alpha", c.alpha);
    f("gamma", c.gamma);
  }
};
class CategoricalFocalCrossentropy : public Loss {
 public:
  explicit CategoricalFocalCrossentropy(CategoricalFocalCrossentropyOptions options = {});
};

struct CategoricalGeneralizedCrossEntropyOptions {
  double q = 0.5;  ///< In (0, 1).
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = {};
  static void fields(auto& c, auto&& f) { f("q", c.q); }
};
class CategoricalGeneralizedCrossEntropy : public Loss {
 public:
  explicit CategoricalGeneralizedCrossEntropy(
      CategoricalGeneralizedCrossEntropyOptions options = {});
};

/// The axes of a config: none, which is all, one, or several.
struct AxesOption {
  Axes values = {};
  AxesOption() = default;
  AxesOption(int64_t axis) : values{axis} {}                         // NOLINT: implicit by design
  AxesOption(std::initializer_list<int64_t> axes) : values(axes) {}  // NOLINT
  bool operator==(const AxesOption&) const = default;
};
template <>
struct ConfigValue<AxesOption> {
  static Config write(const AxesOption& axes);
  static AxesOption read(const Config& config);
};

struct DiceOptions {
  AxesOption axis = {};  ///< Summed over; none: all, the batch included.
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = {};
  static void fields(auto& c, auto&& f) { f("axis", c.axis); }
};
class Dice : public Loss {
 public:
  explicit Dice(DiceOptions options = {});
};

struct TverskyOptions {
  double alpha = 0.5;
  double beta = 0.5;
  AxesOption axis = {};  ///< As of Dice.
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("alpha", c.alpha);
    f("beta", c.beta);
    f("axis", c.axis);
  }
};
class Tversky : public Loss {
 public:
  explicit Tversky(TverskyOptions options = {});
};

struct CircleOptions {
  double gamma = 80;
  double margin = 0.4;
  bool remove_diagonal = true;  ///< An embedding is no pair with itself.
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("gamma", c.gamma);
    f("margin", c.margin);
    f("remove_diagonal", c.remove_diagonal);
  }
};
/// A mean is over the embeddings that have a loss above 0, as in Keras.
class Circle : public Loss {
 public:
  explicit Circle(CircleOptions options = {});
};

}  // namespace cohort::keras
