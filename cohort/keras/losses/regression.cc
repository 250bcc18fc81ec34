// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/where.h>

#include "cohort/base/check.h"
#include "cohort/keras/internal/align_ranks.h"
#include "cohort/keras/losses/internal/classes.h"
#include "cohort/keras/losses/losses.h"

namespace cohort::keras {
namespace {

/// Mean over the last axis of a function of the error; subclasses say which.
template <class C>
class ErrorLoss : public LossImpl<C> {
 public:
  using LossImpl<C>::LossImpl;
  Tensor call(const Tensor& y_true, const Tensor& y_pred) final {
    COHORT_CHECK_ARG(at::isFloatingType(y_pred.scalar_type()), "[", this->name(),
                     "] expected floating predictions, got ", dtype_name(y_pred.scalar_type()));
    const auto [labels, scores] =
        internal::comparable(this->name(), "", y_true.to(y_pred.scalar_type()), y_pred);
    const Tensor values = of_error(scores - labels);
    return values.dim() == 0 ? values : values.mean(-1);
  }

 protected:
  virtual Tensor of_error(const Tensor& error) const = 0;
};

class MeanSquaredErrorLoss final : public ErrorLoss<LossOptions> {
 public:
  explicit MeanSquaredErrorLoss(LossOptions o) : ErrorLoss(std::move(o), "mean_squared_error") {}
  Tensor of_error(const Tensor& error) const override { return error.square(); }
};

class MeanAbsoluteErrorLoss final : public ErrorLoss<LossOptions> {
 public:
  explicit MeanAbsoluteErrorLoss(LossOptions o) : ErrorLoss(std::move(o), "mean_absolute_error") {}
  Tensor of_error(const Tensor& error) const override { return error.abs(); }
};

class HuberLoss final : public ErrorLoss<HuberOptions> {
 public:
  explicit HuberLoss(HuberOptions o) : ErrorLoss(std::move(o), "huber_loss") {
    COHORT_CHECK_ARG(config().delta > 0, "[huber] expected delta above 0, got ", config().delta);
  }
  Tensor of_error(const Tensor& error) const override {
    const double delta = config().delta;
    const Tensor size = error.abs();
    return at::where(size.le(delta), error.square().mul(0.5),
                     size.mul(delta).sub(0.5 * delta * delta));
  }
};

}  // namespace

void internal::add_regression_losses(ClassTable& table) {
  table.add_builtin<HuberLoss>();
  table.add_builtin<MeanAbsoluteErrorLoss>();
  table.add_builtin<MeanSquaredErrorLoss>();
}

MeanSquaredError::MeanSquaredError(LossOptions options)
    : Loss(std::make_shared<MeanSquaredErrorLoss>(std::move(options))) {}

MeanAbsoluteError::MeanAbsoluteError(LossOptions options)
    : Loss(std::make_shared<MeanAbsoluteErrorLoss>(std::move(options))) {}

Huber::Huber(HuberOptions options) : Loss(std::make_shared<HuberLoss>(std::move(options))) {}

}  // namespace cohort::keras
