// SPDX-License-Identifier: Apache-2.0
//
// Mean, Sum, and the means of errors and element-wise matches, by LibTorch operations.
#include <ATen/ExpandUtils.h>
#include <ATen/core/grad_mode.h>

#include "cohort/base/check.h"
#include "cohort/keras/internal/align_ranks.h"
#include "cohort/keras/metrics/internal/classes.h"
#include "cohort/keras/metrics/internal/mean_state.h"
#include "cohort/keras/metrics/internal/sums.h"
#include "cohort/keras/metrics/metrics.h"

namespace cohort::keras {
namespace {

/// Options of a metric that has only a name.
struct NameOptions {
  std::string name = {};
  MetricDType dtype = {};
  static void fields(auto&, auto&&) {}
};

class MeanMetric final : public MetricImpl<NameOptions, internal::MeanMetric> {
 public:
  explicit MeanMetric(NameOptions o) : MetricImpl(internal::named(std::move(o), "mean")) {}
  /// Of values alone: y_true is ignored when a model calls it.
  void update_state(const Tensor&, const Tensor& values, const Tensor& sample_weight) override {
    add_values(values, sample_weight);
  }
  bool takes_values() const override { return true; }
};

class SumMetric final : public MetricImpl<NameOptions> {
 public:
  explicit SumMetric(NameOptions o) : MetricImpl(internal::named(std::move(o), "sum")) {}
  void update_state(const Tensor&, const Tensor& values, const Tensor& sample_weight) override {
    const Tensor v = values.to(kFloat64);
    if (!sample_weight.defined()) return internal::add_to(total_, v.sum());
    auto [aligned, weights] = internal::align_ranks(v, sample_weight.to(kFloat64));
    if (aligned.dim() > weights.dim()) aligned = aligned.flatten(weights.dim()).sum(-1);
    COHORT_CHECK_ARG(at::is_expandable_to(weights.sizes(), aligned.sizes()), "[", name(),
                     ".update_state] expected sample weights of shape ", bracketed(values.sizes()),
                     " or broadcasting to it, got ", bracketed(sample_weight.sizes()));
    internal::add_to(total_, (aligned * weights).sum());
  }
  Tensor result() override { return scalar(internal::read_sum(total_), kFloat64); }
  bool takes_values() const override { return true; }

 private:
  Variable total_ = add_variable({}, "total");
};

/// The mean of a function of targets and predictions, element by element.
class ElementwiseMean : public MetricImpl<NameOptions, internal::MeanMetric> {
 public:
  ElementwiseMean(NameOptions o, const char* standard_name)
      : MetricImpl(internal::named(std::move(o), standard_name)) {}
  Direction direction() const override { return Direction::kDown; }

  void update_state(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) final {
    const auto [labels, scores] = internal::comparable(name(), ".update_state", y_true, y_pred);
    if (labels.numel() == 0 || scores.numel() == 0) return;
    add_values(values(labels, scores), sample_weight);
  }

 protected:
  virtual Tensor values(const Tensor& y_true, const Tensor& y_pred) const = 0;
  /// The last axis averaged away, as the losses of the same names do.
  static Tensor over_last_axis(const Tensor& x) { return x.dim() > 0 ? x.mean(-1) : x; }
};

struct AccuracyMetric final : ElementwiseMean {
  explicit AccuracyMetric(NameOptions o) : ElementwiseMean(std::move(o), "accuracy") {}
  Direction direction() const override { return Direction::kUp; }
  Tensor values(const Tensor& y, const Tensor& p) const override { return y.eq(p); }
};

struct MeanSquaredErrorMetric final : ElementwiseMean {
  explicit MeanSquaredErrorMetric(NameOptions o)
      : ElementwiseMean(std::move(o), "mean_squared_error") {}
  Tensor values(const Tensor& y, const Tensor& p) const override {
    return over_last_axis((p.to(kFloat64) - y.to(kFloat64)).square());
  }
};

struct MeanAbsoluteErrorMetric final : ElementwiseMean {
  explicit MeanAbsoluteErrorMetric(NameOptions o)
      : ElementwiseMean(std::move(o), "mean_absolute_error") {}
  Tensor values(const Tensor& y, const Tensor& p) const override {
    return over_last_axis((p.to(kFloat64) - y.to(kFloat64)).abs());
  }
};

struct BinaryAccuracyOptions {
  std::string name = {};
  double threshold = 0.5;
  MetricDType dtype = {};
  static void fields(auto& c, auto&& f) { f("threshold", c.threshold); }
};

class BinaryAccuracyMetric final : public MetricImpl<BinaryAccuracyOptions, internal::MeanMetric> {
 public:
  explicit BinaryAccuracyMetric(BinaryAccuracyOptions o)
      : MetricImpl(internal::named(std::move(o), "binary_accuracy")) {}
  Direction direction() const override { return Direction::kUp; }

  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    const auto [labels, scores] = internal::comparable(name(), ".update_state", y_true, y_pred);
    const bool direct = !sample_weight.defined() && is_plain(labels) && is_plain(scores) &&
                        scores.dim() > 0 && scores.numel() > 0 && labels.sizes() == scores.sizes();
    if (!direct) {
      return add_values(labels.eq(scores.gt(config().threshold).to(labels.scalar_type())),
                        sample_weight);
    }
    const float* y = labels.const_data_ptr<float>();
    const float* p = scores.const_data_ptr<float>();
    const int64_t n = scores.numel();
    const auto threshold = static_cast<float>(config().threshold);  // as LibTorch compares
    int64_t hits = 0;
    for (int64_t i = 0; i < n; ++i) {
      hits += y[i] == (p[i] > threshold ? 1.0F : 0.0F) ? 1 : 0;
    }
    const auto examples = static_cast<double>(scores.size(0));
    add(static_cast<double>(hits) * examples / static_cast<double>(n), examples);
  }

 private:
  static bool is_plain(const Tensor& x) {
    return x.scalar_type() == kFloat32 && x.device().is_cpu() && x.is_contiguous();
  }
};

}  // namespace

void internal::add_means(ClassTable& table) {
  table.add_builtin<AccuracyMetric>();
  table.add_builtin<BinaryAccuracyMetric>();
  table.add_builtin<keras::MeanMetric>();
  table.add_builtin<MeanAbsoluteErrorMetric>();
  table.add_builtin<MeanSquaredErrorMetric>();
  table.add_builtin<SumMetric>();
}

Mean::Mean(std::string name) : Metric(std::make_shared<MeanMetric>(NameOptions{std::move(name)})) {}
void Mean::update_state(const Tensor& values, const Tensor& sample_weight) const {
  Metric::update_state({}, values, sample_weight);
}
void Mean::add(double weighted_sum, double weight) const {
  static_cast<internal::MeanMetric&>(writable()).add(weighted_sum, weight);
}

Sum::Sum(std::string name) : Metric(std::make_shared<SumMetric>(NameOptions{std::move(name)})) {}
void Sum::update_state(const Tensor& values, const Tensor& sample_weight) const {
  Metric::update_state({}, values, sample_weight);
}

Accuracy::Accuracy(std::string name)
    : Metric(std::make_shared<AccuracyMetric>(NameOptions{std::move(name)})) {}

BinaryAccuracy::BinaryAccuracy(std::string name, double threshold)
    : Metric(std::make_shared<BinaryAccuracyMetric>(
          BinaryAccuracyOptions{std::move(name), threshold})) {}

namespace metrics {

MeanSquaredError::MeanSquaredError(std::string name)
    : Metric(std::make_shared<MeanSquaredErrorMetric>(NameOptions{std::move(name)})) {}

MeanAbsoluteError::MeanAbsoluteError(std::string name)
    : Metric(std::make_shared<MeanAbsoluteErrorMetric>(NameOptions{std::move(name)})) {}

}  // namespace metrics
}  // namespace cohort::keras
