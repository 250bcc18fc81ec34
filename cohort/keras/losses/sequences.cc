// SPDX-License-Identifier: Apache-2.0
//
// Losses whose targets have another shape than the predictions: class numbers, sequences.
#include "cohort/base/check.h"
#include "cohort/keras/losses/internal/classes.h"
#include "cohort/keras/losses/internal/reduce.h"
#include "cohort/keras/losses/losses.h"

namespace cohort::keras {
namespace {

class CategoricalGeneralizedCrossEntropyLoss final
    : public LossImpl<CategoricalGeneralizedCrossEntropyOptions> {
 public:
  explicit CategoricalGeneralizedCrossEntropyLoss(CategoricalGeneralizedCrossEntropyOptions o)
      : LossImpl(std::move(o), "categorical_generalized_cross_entropy") {
    COHORT_CHECK_ARG(config().q > 0 && config().q < 1, "[", name(), "] expected q in (0, 1), got ",
                     config().q);
  }
  Tensor call(const Tensor& y_true, const Tensor& y_pred) override {
    return losses::categorical_generalized_cross_entropy(y_true, y_pred, config().q);
  }
};

class CircleLoss final : public LossImpl<CircleOptions> {
 public:
  explicit CircleLoss(CircleOptions o) : LossImpl(std::move(o), "circle") {}
  Tensor call(const Tensor& y_true, const Tensor& y_pred) override {
    const CircleOptions& o = config();
    return losses::circle(y_true, y_pred, o.remove_diagonal, o.gamma, o.margin);
  }
  // As Keras: what is without loss is not in the mean.
  bool leaves_out() const override { return true; }
  Tensor counted(const Tensor&, const Tensor&, const Tensor& values) const override {
    return values.detach().gt(0);
  }
};

struct CTCLoss final : LossImpl<LossOptions> {
  explicit CTCLoss(LossOptions o) : LossImpl(std::move(o), "ctc") {}
  Tensor call(const Tensor& y_true, const Tensor& y_pred) override {
    return losses::ctc(y_true, y_pred);
  }
};

}  // namespace

void internal::add_sequence_losses(ClassTable& table) {
  table.add_builtin<CTCLoss>();
  table.add_builtin<CategoricalGeneralizedCrossEntropyLoss>();
  table.add_builtin<CircleLoss>();
}

CategoricalGeneralizedCrossEntropy::CategoricalGeneralizedCrossEntropy(
    CategoricalGeneralizedCrossEntropyOptions options)
    : Loss(std::make_shared<CategoricalGeneralizedCrossEntropyLoss>(std::move(options))) {}
Circle::Circle(CircleOptions options) : Loss(std::make_shared<CircleLoss>(std::move(options))) {}
CTC::CTC(LossOptions options) : Loss(std::make_shared<CTCLoss>(std::move(options))) {}

}  // namespace cohort::keras
