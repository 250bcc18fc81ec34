// SPDX-License-Identifier: Apache-2.0
//
// Mean, Sum, and the means of errors and element-wise matches, by LibTorch operations.
#include <ATen/core/grad_mode.h>

#include <functional>

#include "cohort/base/check.h"
#include "cohort/keras/internal/align_ranks.h"
#include "cohort/keras/metrics/internal/mean_state.h"
#include "cohort/keras/metrics/metrics.h"

namespace cohort::keras {
namespace {

class MeanImpl final : public internal::MeanMetric {
 public:
  using MeanMetric::MeanMetric;
  /// Of values alone: y_true is ignored when a model calls it.
  void update_state(const Tensor&, const Tensor& values, const Tensor& sample_weight) override {
    add_values(values, sample_weight);
  }
};

class SumImpl final : public MetricBase {
 public:
  explicit SumImpl(std::string name) : MetricBase(std::move(name)) {}
  void update_state(const Tensor&, const Tensor& values, const Tensor& sample_weight) override {
    const Tensor v = values.to(kFloat64);
    if (!sample_weight.defined()) return internal::add_to(total_, v.sum().item<double>());
    const auto [aligned, weights] = internal::align_ranks(v, sample_weight.to(kFloat64));
    internal::add_to(total_, (aligned * weights).sum().item<double>());
  }
  Tensor result() override { return scalar(internal::read_sum(total_), kFloat64); }

 private:
  Variable total_ = add_variable({}, "total");
};

/// The mean of a function of targets and predictions, element by element.
class ElementwiseMean final : public internal::MeanMetric {
 public:
  using Function = std::function<Tensor(const Tensor& y_true, const Tensor& y_pred)>;
  ElementwiseMean(std::string name, Function values)
      : MeanMetric(std::move(name)), values_(std::move(values)) {}

  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    const auto [labels, scores] = internal::align_ranks(y_true, y_pred);
    COHORT_CHECK_ARG(labels.sizes() == scores.sizes(), "[", name(),
                     ".update_state] expected y_true of shape ", bracketed(y_pred.sizes()),
                     " like y_pred, got ", bracketed(y_true.sizes()));
    add_values(values_(labels, scores), sample_weight);
  }

 private:
  const Function values_;
};

/// The last axis averaged away, as the losses of the same names do.
Tensor over_last_axis(const Tensor& x) { return x.dim() > 1 ? x.mean(-1) : x; }

}  // namespace

Mean::Mean(std::string name) : Metric(std::make_shared<MeanImpl>(std::move(name))) {}
void Mean::update_state(const Tensor& values, const Tensor& sample_weight) const {
  Metric::update_state({}, values, sample_weight);
}
void Mean::add(double weighted_sum, double weight) const {
  static_cast<internal::MeanMetric&>(writable()).add(weighted_sum, weight);
}

Sum::Sum(std::string name) : Metric(std::make_shared<SumImpl>(std::move(name))) {}
void Sum::update_state(const Tensor& values, const Tensor& sample_weight) const {
  Metric::update_state({}, values, sample_weight);
}

Accuracy::Accuracy(std::string name)
    : Metric(std::make_shared<ElementwiseMean>(
          std::move(name), [](const Tensor& y, const Tensor& p) { return y.eq(p); })) {}

BinaryAccuracy::BinaryAccuracy(std::string name, double threshold)
    : Metric(std::make_shared<ElementwiseMean>(std::move(name),
                                               [threshold](const Tensor& y, const Tensor& p) {
                                                 return y.eq(p.gt(threshold).to(y.scalar_type()));
                                               })) {}

namespace metrics {

MeanSquaredError::MeanSquaredError(std::string name)
    : Metric(
          std::make_shared<ElementwiseMean>(std::move(name), [](const Tensor& y, const Tensor& p) {
            return over_last_axis((p.to(kFloat64) - y.to(kFloat64)).square());
          })) {}

MeanAbsoluteError::MeanAbsoluteError(std::string name)
    : Metric(
          std::make_shared<ElementwiseMean>(std::move(name), [](const Tensor& y, const Tensor& p) {
            return over_last_axis((p.to(kFloat64) - y.to(kFloat64)).abs());
          })) {}

}  // namespace metrics
}  // namespace cohort::keras
