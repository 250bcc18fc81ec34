// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/where.h>

#include "cohort/base/check.h"
#include "cohort/keras/internal/align_ranks.h"
#include "cohort/keras/losses/losses.h"

namespace cohort::keras {
namespace {

std::string name_or(const std::string& given, const char* standard) {
  return given.empty() ? standard : given;
}

/// Mean over the last axis of a function of the error; subclasses say which.
class ErrorLoss : public LossBase {
 public:
  using LossBase::LossBase;
  Tensor call(const Tensor& y_true, const Tensor& y_pred) final {
    COHORT_CHECK_ARG(at::isFloatingType(y_pred.scalar_type()), "[", name(),
                     "] expected floating predictions, got ", dtype_name(y_pred.scalar_type()));
    const auto [labels, scores] =
        internal::comparable(name(), "", y_true.to(y_pred.scalar_type()), y_pred);
    const Tensor values = of_error(scores - labels);
    return values.dim() == 0 ? values : values.mean(-1);
  }

 protected:
  virtual Tensor of_error(const Tensor& error) const = 0;
};

class SquaredLoss final : public ErrorLoss {
 public:
  using ErrorLoss::ErrorLoss;
  Tensor of_error(const Tensor& error) const override { return error.square(); }
};

class AbsoluteLoss final : public ErrorLoss {
 public:
  using ErrorLoss::ErrorLoss;
  Tensor of_error(const Tensor& error) const override { return error.abs(); }
};

class HuberLoss final : public ErrorLoss {
 public:
  HuberLoss(std::string name, const HuberOptions& options)
      : ErrorLoss(std::move(name), options.reduction), delta_(options.delta) {}
  Tensor of_error(const Tensor& error) const override {
    const Tensor size = error.abs();
    return at::where(size.le(delta_), error.square().mul(0.5),
                     size.mul(delta_).sub(0.5 * delta_ * delta_));
  }

 private:
  const double delta_;
};

}  // namespace

MeanSquaredError::MeanSquaredError(LossOptions options)
    : Loss(std::make_shared<SquaredLoss>(name_or(options.name, "mean_squared_error"),
                                         options.reduction)) {}

MeanAbsoluteError::MeanAbsoluteError(LossOptions options)
    : Loss(std::make_shared<AbsoluteLoss>(name_or(options.name, "mean_absolute_error"),
                                          options.reduction)) {}

Huber::Huber(HuberOptions options)
    : Loss(std::make_shared<HuberLoss>(name_or(options.name, "huber_loss"), options)) {
  COHORT_CHECK_ARG(options.delta > 0, "[huber] expected delta above 0, got ", options.delta);
}

}  // namespace cohort::keras
