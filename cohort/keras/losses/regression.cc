// SPDX-License-Identifier: Apache-2.0
//
// Losses that compare targets and predictions element by element: the functions, with a reduction.
#include <ATen/ops/where.h>

#include "cohort/base/check.h"
#include "cohort/keras/internal/align_ranks.h"
#include "cohort/keras/losses/internal/classes.h"
#include "cohort/keras/losses/losses.h"

namespace cohort::keras {
namespace {

/// A function of floating predictions; subclasses say which.
template <class C>
class FormulaLoss : public LossImpl<C> {
 public:
  using LossImpl<C>::LossImpl;
  Tensor call(const Tensor& y_true, const Tensor& y_pred) final {
    COHORT_CHECK_ARG(at::isFloatingType(y_pred.scalar_type()), "[", this->name(),
                     "] expected floating predictions, got ", dtype_name(y_pred.scalar_type()));
    const auto [labels, scores] =
        internal::comparable(this->name(), "", y_true.to(y_pred.scalar_type()), y_pred);
    return values(labels, scores);
  }

 protected:
  virtual Tensor values(const Tensor& y_true, const Tensor& y_pred) const = 0;
};

/// One without numbers of its own.
template <Tensor (*kFunction)(const Tensor&, const Tensor&)>
class PlainLoss : public FormulaLoss<LossOptions> {
 public:
  using FormulaLoss::FormulaLoss;
  Tensor values(const Tensor& y, const Tensor& p) const final { return kFunction(y, p); }
};

struct CategoricalHingeLoss final : PlainLoss<losses::categorical_hinge> {
  explicit CategoricalHingeLoss(LossOptions o) : PlainLoss(std::move(o), "categorical_hinge") {}
};
struct HingeLoss final : PlainLoss<losses::hinge> {
  explicit HingeLoss(LossOptions o) : PlainLoss(std::move(o), "hinge") {}
};
struct KLDivergenceLoss final : PlainLoss<losses::kl_divergence> {
  explicit KLDivergenceLoss(LossOptions o) : PlainLoss(std::move(o), "kl_divergence") {}
};
struct LogCoshLoss final : PlainLoss<losses::log_cosh> {
  explicit LogCoshLoss(LossOptions o) : PlainLoss(std::move(o), "log_cosh") {}
};
struct MeanAbsoluteErrorLoss final : PlainLoss<losses::mean_absolute_error> {
  explicit MeanAbsoluteErrorLoss(LossOptions o) : PlainLoss(std::move(o), "mean_absolute_error") {}
};
struct MeanAbsolutePercentageErrorLoss final : PlainLoss<losses::mean_absolute_percentage_error> {
  explicit MeanAbsolutePercentageErrorLoss(LossOptions o)
      : PlainLoss(std::move(o), "mean_absolute_percentage_error") {}
};
struct MeanSquaredErrorLoss final : PlainLoss<losses::mean_squared_error> {
  explicit MeanSquaredErrorLoss(LossOptions o) : PlainLoss(std::move(o), "mean_squared_error") {}
};
struct MeanSquaredLogarithmicErrorLoss final : PlainLoss<losses::mean_squared_logarithmic_error> {
  explicit MeanSquaredLogarithmicErrorLoss(LossOptions o)
      : PlainLoss(std::move(o), "mean_squared_logarithmic_error") {}
};
struct PoissonLoss final : PlainLoss<losses::poisson> {
  explicit PoissonLoss(LossOptions o) : PlainLoss(std::move(o), "poisson") {}
};
struct SquaredHingeLoss final : PlainLoss<losses::squared_hinge> {
  explicit SquaredHingeLoss(LossOptions o) : PlainLoss(std::move(o), "squared_hinge") {}
};

class HuberLoss final : public FormulaLoss<HuberOptions> {
 public:
  explicit HuberLoss(HuberOptions o) : FormulaLoss(std::move(o), "huber_loss") {
    COHORT_CHECK_ARG(config().delta > 0, "[huber] expected delta above 0, got ", config().delta);
  }
  Tensor values(const Tensor& y, const Tensor& p) const override {
    return losses::huber(y, p, config().delta);
  }
};

struct CosineSimilarityLoss final : FormulaLoss<CosineSimilarityOptions> {
  explicit CosineSimilarityLoss(CosineSimilarityOptions o)
      : FormulaLoss(std::move(o), "cosine_similarity") {}
  Tensor values(const Tensor& y, const Tensor& p) const override {
    return losses::cosine_similarity(y, p, config().axis);
  }
};

struct DiceLoss final : FormulaLoss<DiceOptions> {
  explicit DiceLoss(DiceOptions o) : FormulaLoss(std::move(o), "dice") {}
  Tensor values(const Tensor& y, const Tensor& p) const override {
    return losses::dice(y, p, config().axis.values);
  }
};

struct TverskyLoss final : FormulaLoss<TverskyOptions> {
  explicit TverskyLoss(TverskyOptions o) : FormulaLoss(std::move(o), "tversky") {}
  Tensor values(const Tensor& y, const Tensor& p) const override {
    return losses::tversky(y, p, config().alpha, config().beta, config().axis.values);
  }
};

template <class C>
void check_focal(const LossBase& loss, const C& o) {
  COHORT_CHECK_ARG(o.label_smoothing >= 0 && o.label_smoothing <= 1, "[", loss.name(),
                   "] expected label_smoothing in [0, 1], got ", o.label_smoothing);
}

class BinaryFocalCrossentropyLoss final : public FormulaLoss<BinaryFocalCrossentropyOptions> {
 public:
  explicit BinaryFocalCrossentropyLoss(BinaryFocalCrossentropyOptions o)
      : FormulaLoss(std::move(o), "binary_focal_crossentropy") {
    check_focal(*this, config());
  }
  Tensor values(const Tensor& y, const Tensor& p) const override {
    const auto& o = config();
    return losses::binary_focal_crossentropy(
        y, p,
        {o.apply_class_balancing, o.alpha, o.gamma, o.from_logits, o.label_smoothing, o.axis});
  }
};

class CategoricalFocalCrossentropyLoss final
    : public FormulaLoss<CategoricalFocalCrossentropyOptions> {
 public:
  explicit CategoricalFocalCrossentropyLoss(CategoricalFocalCrossentropyOptions o)
      : FormulaLoss(std::move(o), "categorical_focal_crossentropy") {
    check_focal(*this, config());
  }
  Tensor values(const Tensor& y, const Tensor& p) const override {
    const auto& o = config();
    return losses::categorical_focal_crossentropy(
        y, p, {o.alpha, o.gamma, o.from_logits, o.label_smoothing, o.axis});
  }
};

}  // namespace

void internal::add_regression_losses(ClassTable& table) {
  table.add_builtin<BinaryFocalCrossentropyLoss>();
  table.add_builtin<CategoricalFocalCrossentropyLoss>();
  table.add_builtin<CategoricalHingeLoss>();
  table.add_builtin<CosineSimilarityLoss>();
  table.add_builtin<DiceLoss>();
  table.add_builtin<HingeLoss>();
  table.add_builtin<HuberLoss>();
  table.add_builtin<KLDivergenceLoss>();
  table.add_builtin<LogCoshLoss>();
  table.add_builtin<MeanAbsoluteErrorLoss>();
  table.add_builtin<MeanAbsolutePercentageErrorLoss>();
  table.add_builtin<MeanSquaredErrorLoss>();
  table.add_builtin<MeanSquaredLogarithmicErrorLoss>();
  table.add_builtin<PoissonLoss>();
  table.add_builtin<SquaredHingeLoss>();
  table.add_builtin<TverskyLoss>();
}

BinaryFocalCrossentropy::BinaryFocalCrossentropy(BinaryFocalCrossentropyOptions options)
    : Loss(std::make_shared<BinaryFocalCrossentropyLoss>(std::move(options))) {}
CategoricalFocalCrossentropy::CategoricalFocalCrossentropy(
    CategoricalFocalCrossentropyOptions options)
    : Loss(std::make_shared<CategoricalFocalCrossentropyLoss>(std::move(options))) {}
CategoricalHinge::CategoricalHinge(LossOptions options)
    : Loss(std::make_shared<CategoricalHingeLoss>(std::move(options))) {}
CosineSimilarity::CosineSimilarity(CosineSimilarityOptions options)
    : Loss(std::make_shared<CosineSimilarityLoss>(std::move(options))) {}
Dice::Dice(DiceOptions options) : Loss(std::make_shared<DiceLoss>(std::move(options))) {}
Hinge::Hinge(LossOptions options) : Loss(std::make_shared<HingeLoss>(std::move(options))) {}
Huber::Huber(HuberOptions options) : Loss(std::make_shared<HuberLoss>(std::move(options))) {}
KLDivergence::KLDivergence(LossOptions options)
    : Loss(std::make_shared<KLDivergenceLoss>(std::move(options))) {}
LogCosh::LogCosh(LossOptions options) : Loss(std::make_shared<LogCoshLoss>(std::move(options))) {}
MeanAbsoluteError::MeanAbsoluteError(LossOptions options)
    : Loss(std::make_shared<MeanAbsoluteErrorLoss>(std::move(options))) {}
MeanAbsolutePercentageError::MeanAbsolutePercentageError(LossOptions options)
    : Loss(std::make_shared<MeanAbsolutePercentageErrorLoss>(std::move(options))) {}
MeanSquaredError::MeanSquaredError(LossOptions options)
    : Loss(std::make_shared<MeanSquaredErrorLoss>(std::move(options))) {}
MeanSquaredLogarithmicError::MeanSquaredLogarithmicError(LossOptions options)
    : Loss(std::make_shared<MeanSquaredLogarithmicErrorLoss>(std::move(options))) {}
Poisson::Poisson(LossOptions options) : Loss(std::make_shared<PoissonLoss>(std::move(options))) {}
SquaredHinge::SquaredHinge(LossOptions options)
    : Loss(std::make_shared<SquaredHingeLoss>(std::move(options))) {}
Tversky::Tversky(TverskyOptions options)
    : Loss(std::make_shared<TverskyLoss>(std::move(options))) {}

}  // namespace cohort::keras
