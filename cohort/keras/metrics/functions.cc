// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/metrics/functions.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/keras/internal/align_ranks.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/metrics/internal/classes.h"
#include "cohort/keras/metrics/internal/mean_state.h"
#include "cohort/keras/metrics/internal/sums.h"

namespace cohort::keras {
namespace {

struct PlainOptions {
  std::string name = {};
  MetricDType dtype = {};
  static void fields(auto&, auto&&) {}
};

/// The mean of what values() says of each example.
template <class C>
class FunctionMean : public MetricImpl<C, internal::MeanMetric> {
 public:
  FunctionMean(C config, const char* standard_name)
      : MetricImpl<C, internal::MeanMetric>(internal::named(std::move(config), standard_name)) {}
  Direction direction() const override { return Direction::kDown; }

  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    if (y_true.numel() == 0 || y_pred.numel() == 0) return;
    this->add_values(values(y_true, y_pred), sample_weight);
  }

 protected:
  virtual Tensor values(const Tensor& y_true, const Tensor& y_pred) const = 0;
  /// Both of one rank, and checked.
  std::pair<Tensor, Tensor> both(const Tensor& y_true, const Tensor& y_pred) const {
    return internal::comparable(this->name(), ".update_state", y_true, y_pred);
  }
};

template <Tensor (*kFunction)(const Tensor&, const Tensor&)>
class PlainMean : public FunctionMean<PlainOptions> {
 public:
  using FunctionMean::FunctionMean;
  Tensor values(const Tensor& y_true, const Tensor& y_pred) const override {
    const auto [y, p] = both(y_true, y_pred);
    return kFunction(y, p);
  }
};

struct CategoricalHingeMetric final : PlainMean<losses::categorical_hinge> {
  explicit CategoricalHingeMetric(Options o) : PlainMean(std::move(o), "categorical_hinge") {}
};
struct HingeMetric final : PlainMean<losses::hinge> {
  explicit HingeMetric(Options o) : PlainMean(std::move(o), "hinge") {}
};
struct KLDivergenceMetric final : PlainMean<losses::kl_divergence> {
  explicit KLDivergenceMetric(Options o) : PlainMean(std::move(o), "kl_divergence") {}
};
struct LogCoshErrorMetric final : PlainMean<losses::log_cosh> {
  explicit LogCoshErrorMetric(Options o) : PlainMean(std::move(o), "logcosh") {}
};
struct MeanAbsolutePercentageErrorMetric final : PlainMean<losses::mean_absolute_percentage_error> {
  explicit MeanAbsolutePercentageErrorMetric(Options o)
      : PlainMean(std::move(o), "mean_absolute_percentage_error") {}
};
struct MeanSquaredLogarithmicErrorMetric final : PlainMean<losses::mean_squared_logarithmic_error> {
  explicit MeanSquaredLogarithmicErrorMetric(Options o)
      : PlainMean(std::move(o), "mean_squared_logarithmic_error") {}
};
struct PoissonMetric final : PlainMean<losses::poisson> {
  explicit PoissonMetric(Options o) : PlainMean(std::move(o), "poisson") {}
};
struct SquaredHingeMetric final : PlainMean<losses::squared_hinge> {
  explicit SquaredHingeMetric(Options o) : PlainMean(std::move(o), "squared_hinge") {}
};

class RootMeanSquaredErrorMetric final : public FunctionMean<PlainOptions> {
 public:
  explicit RootMeanSquaredErrorMetric(Options o)
      : FunctionMean(std::move(o), "root_mean_squared_error") {}
  Tensor values(const Tensor& y_true, const Tensor& y_pred) const override {
    const auto [y, p] = both(y_true, y_pred);
    return (p.to(kFloat64) - y.to(kFloat64)).square();
  }
  Tensor result() override { return MeanMetric::result().sqrt(); }
  bool heeds_masks() const override { return false; }  // no MeanMetricWrapper in Keras
};

class CosineSimilarityMetric final : public FunctionMean<metrics::CosineSimilarityOptions> {
 public:
  explicit CosineSimilarityMetric(Options o) : FunctionMean(std::move(o), "cosine_similarity") {}
  Direction direction() const override { return Direction::kUp; }
  Tensor values(const Tensor& y_true, const Tensor& y_pred) const override {
    const auto [y, p] = both(y_true, y_pred);
    return -losses::cosine_similarity(y, p, config().axis);
  }
};

class PearsonCorrelationMetric final : public FunctionMean<AxisMetricOptions> {
 public:
  explicit PearsonCorrelationMetric(Options o)
      : FunctionMean(std::move(o), "pearson_correlation") {}
  Direction direction() const override { return Direction::kUp; }
  Tensor values(const Tensor& y_true, const Tensor& y_pred) const override {
    const auto [y, p] = both(y_true, y_pred);
    return (normed(y) * normed(p)).mean(config().axis);
  }

 private:
  Tensor normed(const Tensor& x) const {
    const Tensor centred = x.to(kFloat64) - x.to(kFloat64).mean(config().axis, /*keepdim=*/true);
    return centred / centred.square().mean(config().axis, /*keepdim=*/true).sqrt();
  }
};

class ConcordanceCorrelationMetric final : public FunctionMean<AxisMetricOptions> {
 public:
  explicit ConcordanceCorrelationMetric(Options o)
      : FunctionMean(std::move(o), "concordance_correlation") {}
  Direction direction() const override { return Direction::kUp; }
  Tensor values(const Tensor& y_true, const Tensor& y_pred) const override {
    const auto [labels, scores] = both(y_true, y_pred);
    const Tensor y = labels.to(kFloat64), p = scores.to(kFloat64);
    const int64_t axis = config().axis;
    const Tensor y_mean = y.mean(axis, /*keepdim=*/true), p_mean = p.mean(axis, /*keepdim=*/true);
    const Tensor spread = (y - y_mean).square().mean(axis, /*keepdim=*/true) +
                          (p - p_mean).square().mean(axis, /*keepdim=*/true) +
                          (y_mean - p_mean).square();
    return ((y - p_mean) * (p - p_mean) * 2 / (spread + 1e-7)).mean(axis);
  }
};

class BinaryCrossentropyMetric final : public FunctionMean<metrics::BinaryCrossentropyOptions> {
 public:
  explicit BinaryCrossentropyMetric(Options o)
      : FunctionMean(std::move(o), "binary_crossentropy"),
        loss_({.from_logits = config().from_logits,
               .label_smoothing = config().label_smoothing,
               .name = name()}) {}
  Tensor values(const Tensor& y_true, const Tensor& y_pred) const override {
    return loss_.base().call(y_true, y_pred);
  }

 private:
  const BinaryCrossentropy loss_;
};

class CategoricalCrossentropyMetric final
    : public FunctionMean<metrics::CategoricalCrossentropyOptions> {
 public:
  explicit CategoricalCrossentropyMetric(Options o)
      : FunctionMean(std::move(o), "categorical_crossentropy"),
        loss_({.from_logits = config().from_logits,
               .label_smoothing = config().label_smoothing,
               .name = name()}) {}
  Tensor values(const Tensor& y_true, const Tensor& y_pred) const override {
    return loss_.base().call(y_true, y_pred);
  }

 private:
  const CategoricalCrossentropy loss_;
};

class SparseCategoricalCrossentropyMetric final
    : public FunctionMean<metrics::SparseCategoricalCrossentropyOptions> {
 public:
  explicit SparseCategoricalCrossentropyMetric(Options o)
      : FunctionMean(std::move(o), "sparse_categorical_crossentropy"),
        loss_({.from_logits = config().from_logits,
               .ignore_class = config().ignore_class,
               .name = name()}) {}
  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    if (!sample_weight.defined() || !config().ignore_class || y_pred.numel() == 0) {
      return FunctionMean::update_state(y_true, y_pred, sample_weight);
    }
    const Tensor losses = values(y_true, y_pred);
    const Tensor counts = y_true.reshape(losses.sizes()).ne(*config().ignore_class);
    const auto [weights, mask] = internal::align_ranks(sample_weight.to(kFloat64), counts);
    add_values(losses, weights * mask);
  }
  Tensor values(const Tensor& y_true, const Tensor& y_pred) const override {
    return loss_.base().call(y_true, y_pred);
  }

 private:
  const SparseCategoricalCrossentropy loss_;
};

/// A program's function, which no file can hold.
class FunctionMetric final : public internal::MeanMetric {
 public:
  FunctionMetric(std::function<Tensor(const Tensor&, const Tensor&)> function, std::string name,
                 Direction direction)
      : MeanMetric(std::move(name)), function_(std::move(function)), direction_(direction) {}
  Direction direction() const override { return direction_; }
  Config get_config() const override {
    throw Unimplemented(str_cat("[", name(),
                                ".get_config] expected a metric with a name or a class, got a "
                                "function, which no config can hold: derive from keras::MetricImpl "
                                "and register the class"));
  }
  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    if (y_true.numel() == 0 || y_pred.numel() == 0) return;
    const auto [labels, scores] = internal::align_ranks(y_true, y_pred);
    add_values(function_(labels, scores), sample_weight);
  }

 private:
  const std::function<Tensor(const Tensor&, const Tensor&)> function_;
  const Direction direction_;
};

class R2ScoreMetric final : public MetricImpl<R2ScoreOptions> {
 public:
  explicit R2ScoreMetric(R2ScoreOptions o)
      : MetricImpl(internal::named(std::move(o), "r2_score")),
        samples_(add_variable({}, "num_samples")) {
    const auto& how = config().class_aggregation;
    COHORT_CHECK_ARG(!how || *how == "uniform_average" || *how == "variance_weighted_average", "[",
                     name(),
                     "] expected class_aggregation \"uniform_average\", "
                     "\"variance_weighted_average\" or none, got \"",
                     how.value_or(""), "\"");
    COHORT_CHECK_ARG(config().num_regressors >= 0, "[", name(),
                     "] expected num_regressors of 0 or more, got ", config().num_regressors);
    wait_for_shapes();
  }
  Direction direction() const override { return Direction::kUp; }

  void build(const Shape&, const Shape& y_pred) override {
    COHORT_CHECK_ARG(y_pred.size() == 2, "[", name(),
                     "] expected predictions of shape [b, outputs], got ", bracketed(y_pred));
    const Shape shape = {y_pred[1]};
    squares_ = add_variable(shape, "squared_sum");
    sum_ = add_variable(shape, "sum");
    residual_ = add_variable(shape, "residual");
    count_ = add_variable(shape, "count");
  }

  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    const auto [labels, scores] = internal::comparable(name(), ".update_state", y_true, y_pred);
    if (scores.numel() == 0) return;
    const Tensor p = scores.to(kFloat64), y = labels.to(kFloat64).expand_as(p);
    Tensor w = at::ones({1}, p.options());
    if (sample_weight.defined()) w = sample_weight.to(kFloat64);
    if (w.dim() == 1) w = w.unsqueeze(-1);
    COHORT_CHECK_ARG(w.dim() == 2 && (w.size(0) == 1 || w.size(0) == p.size(0)) &&
                         (w.size(1) == 1 || w.size(1) == p.size(1)),
                     "[", name(), ".update_state] expected sample weights of shape [", p.size(0),
                     "], got ", bracketed(sample_weight.sizes()));
    w = w.expand_as(p);
    internal::add_tensor(sum_, (y * w).sum(0));
    internal::add_tensor(squares_, (y * y * w).sum(0));
    internal::add_tensor(residual_, ((y - p).square() * w).sum(0));
    internal::add_tensor(count_, w.sum(0));
    internal::add_to(samples_, static_cast<double>(y.numel()));
  }

  Tensor result() override {
    if (waits_for_shapes()) return scalar(0, kFloat64);
    const Tensor sum = internal::read_tensor(sum_);
    const Tensor total =
        internal::read_tensor(squares_) - sum * (sum / internal::read_tensor(count_));
    const Tensor raw = 1 - internal::read_tensor(residual_) / total;
    const Tensor scores = raw.where(raw.isinf().logical_not(), scalar(0, kFloat64));
    Tensor score = scores;
    if (config().class_aggregation == "uniform_average") {
      score = scores.mean();
    } else if (config().class_aggregation) {
      score = (total * scores).sum() / total.sum();
    }
    return adjusted(score);
  }

 private:
  Tensor adjusted(const Tensor& score) const {
    const double n = internal::read_sum(samples_);
    const auto p = static_cast<double>(config().num_regressors);
    if (p == 0) return score;
    if (p >= n - 1) {
      COHORT_LOG(kWarning, "[", name(), "] expected more than num_regressors + 1 = ", p + 1,
                 " values for the adjusted score, got ", n, ": the result is the plain one");
      return score;
    }
    return 1 - (1 - score) * ((n - 1) / (n - p - 1));
  }

  Variable samples_, squares_, sum_, residual_, count_;
};

}  // namespace

std::shared_ptr<MetricBase> internal::function_metric(
    std::function<Tensor(const Tensor&, const Tensor&)> function, std::string name,
    Direction direction) {
  return std::make_shared<FunctionMetric>(std::move(function), std::move(name), direction);
}

Metric Metric::of_loss(const Loss& loss) {
  COHORT_CHECK_ARG(loss, "[metric] expected a loss, got an empty keras::Loss");
  COHORT_CHECK_ARG(!loss.base().leaves_out(),
                   "[metric] expected a loss that counts all examples, got ", loss.name(),
                   " with ignore_class: give a metric of that name, which takes it too");
  return {[loss](const Tensor& y_true, const Tensor& y_pred) {
            return loss.base().call(y_true, y_pred);
          },
          loss.name()};
}

void internal::add_function_metrics(ClassTable& table) {
  table.add_builtin<BinaryCrossentropyMetric>();
  table.add_builtin<CategoricalCrossentropyMetric>();
  table.add_builtin<CategoricalHingeMetric>();
  table.add_builtin<ConcordanceCorrelationMetric>();
  table.add_builtin<CosineSimilarityMetric>();
  table.add_builtin<HingeMetric>();
  table.add_builtin<KLDivergenceMetric>();
  table.add_builtin<LogCoshErrorMetric>();
  table.add_builtin<MeanAbsolutePercentageErrorMetric>();
  table.add_builtin<MeanSquaredLogarithmicErrorMetric>();
  table.add_builtin<PearsonCorrelationMetric>();
  table.add_builtin<PoissonMetric>();
  table.add_builtin<R2ScoreMetric>();
  table.add_builtin<RootMeanSquaredErrorMetric>();
  table.add_builtin<SparseCategoricalCrossentropyMetric>();
  table.add_builtin<SquaredHingeMetric>();
}

MeanMetricWrapper::MeanMetricWrapper(std::function<Tensor(const Tensor&, const Tensor&)> function,
                                     std::string name, Direction direction)
    : Metric(internal::function_metric(
          cohort::internal::base::checked_function("[metric]", std::move(function)),
          std::move(name), direction)) {}
RootMeanSquaredError::RootMeanSquaredError(std::string name)
    : Metric(std::make_shared<RootMeanSquaredErrorMetric>(PlainOptions{std::move(name)})) {}
LogCoshError::LogCoshError(std::string name)
    : Metric(std::make_shared<LogCoshErrorMetric>(PlainOptions{std::move(name)})) {}
PearsonCorrelation::PearsonCorrelation(AxisMetricOptions options)
    : Metric(std::make_shared<PearsonCorrelationMetric>(std::move(options))) {}
ConcordanceCorrelation::ConcordanceCorrelation(AxisMetricOptions options)
    : Metric(std::make_shared<ConcordanceCorrelationMetric>(std::move(options))) {}
R2Score::R2Score(R2ScoreOptions options)
    : Metric(std::make_shared<R2ScoreMetric>(std::move(options))) {}

namespace metrics {

MeanAbsolutePercentageError::MeanAbsolutePercentageError(std::string name)
    : Metric(std::make_shared<MeanAbsolutePercentageErrorMetric>(PlainOptions{std::move(name)})) {}
MeanSquaredLogarithmicError::MeanSquaredLogarithmicError(std::string name)
    : Metric(std::make_shared<MeanSquaredLogarithmicErrorMetric>(PlainOptions{std::move(name)})) {}
KLDivergence::KLDivergence(std::string name)
    : Metric(std::make_shared<KLDivergenceMetric>(PlainOptions{std::move(name)})) {}
Poisson::Poisson(std::string name)
    : Metric(std::make_shared<PoissonMetric>(PlainOptions{std::move(name)})) {}
Hinge::Hinge(std::string name)
    : Metric(std::make_shared<HingeMetric>(PlainOptions{std::move(name)})) {}
SquaredHinge::SquaredHinge(std::string name)
    : Metric(std::make_shared<SquaredHingeMetric>(PlainOptions{std::move(name)})) {}
CategoricalHinge::CategoricalHinge(std::string name)
    : Metric(std::make_shared<CategoricalHingeMetric>(PlainOptions{std::move(name)})) {}
CosineSimilarity::CosineSimilarity(CosineSimilarityOptions options)
    : Metric(std::make_shared<CosineSimilarityMetric>(std::move(options))) {}
BinaryCrossentropy::BinaryCrossentropy(BinaryCrossentropyOptions options)
    : Metric(std::make_shared<BinaryCrossentropyMetric>(std::move(options))) {}
CategoricalCrossentropy::CategoricalCrossentropy(CategoricalCrossentropyOptions options)
    : Metric(std::make_shared<CategoricalCrossentropyMetric>(std::move(options))) {}
SparseCategoricalCrossentropy::SparseCategoricalCrossentropy(
    SparseCategoricalCrossentropyOptions options)
    : Metric(std::make_shared<SparseCategoricalCrossentropyMetric>(std::move(options))) {}

}  // namespace metrics
}  // namespace cohort::keras
