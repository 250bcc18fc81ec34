// SPDX-License-Identifier: Apache-2.0
//
// Counts of a confusion matrix, precision, recall, and the areas under curves.
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>

#include "cohort/base/check.h"
#include "cohort/keras/metrics/classification.h"
#include "cohort/keras/metrics/internal/classes.h"
#include "cohort/keras/metrics/internal/confusion.h"
#include "cohort/keras/metrics/internal/mean_state.h"
#include "cohort/keras/metrics/internal/sums.h"

namespace cohort::keras {
namespace {

using internal::ConfusionCounts;
using internal::ConfusionRule;

using CountMember = std::vector<double> ConfusionCounts::*;

/// Sums of counts as variables, each for a member of ConfusionCounts.
class ConfusionMetric : public MetricBase {
 public:
  using MetricBase::MetricBase;

  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    if (y_true.numel() == 0 || y_pred.numel() == 0) return;
    if (internal::is_on_device(sums_.front().second)) {
      const internal::DeviceConfusion counts =
          device_counts_.count(name(), rule_, y_true, y_pred, sample_weight);
      for (const auto& [member, sum] : sums_) {
        internal::add_tensor(sum, counts.of(member).reshape(sum.shape()));
      }
      return;
    }
    const ConfusionCounts counts =
        internal::count_confusion(name(), rule_, y_true, y_pred, sample_weight);
    for (const auto& [member, sum] : sums_) internal::add_numbers(sum, counts.*member);
  }

 protected:
  void set_rule(ConfusionRule rule) { rule_ = std::move(rule); }
  /// Shapes: [thresholds], or [thresholds, labels] with labels above 0.
  void add_sum(CountMember member, const char* name, int64_t labels = 0) {
    Shape shape = {static_cast<int64_t>(rule_.thresholds.size())};
    if (labels > 0) shape.push_back(labels);
    sums_.emplace_back(member, add_variable(shape, name));
  }
  Tensor sum(CountMember member) const {
    for (const auto& [own, variable] : sums_) {
      if (own == member) return internal::read_tensor(variable);
    }
    return {};
  }
  Tensor true_positives() const { return sum(&ConfusionCounts::true_positives); }
  Tensor false_positives() const { return sum(&ConfusionCounts::false_positives); }
  Tensor true_negatives() const { return sum(&ConfusionCounts::true_negatives); }
  Tensor false_negatives() const { return sum(&ConfusionCounts::false_negatives); }
  void add_all_sums(int64_t labels = 0) {
    add_sum(&ConfusionCounts::true_positives, "true_positives", labels);
    add_sum(&ConfusionCounts::false_positives, "false_positives", labels);
    add_sum(&ConfusionCounts::true_negatives, "true_negatives", labels);
    add_sum(&ConfusionCounts::false_negatives, "false_negatives", labels);
  }

 private:
  ConfusionRule rule_;
  internal::DeviceCounter device_counts_;
  std::vector<std::pair<CountMember, Variable>> sums_;
};

void check_thresholds(const std::string& metric, const std::vector<double>& thresholds) {
  for (const double t : thresholds) {
    COHORT_CHECK_ARG(t >= 0 && t <= 1, "[", metric, "] expected thresholds in [0, 1], got ", t);
  }
}

std::vector<double> thresholds_of(const std::string& metric, const Thresholds& given,
                                  double standard) {
  COHORT_CHECK_ARG(!given.is_list || !given.values.empty(), "[", metric,
                   "] expected at least one threshold, got an empty list");
  check_thresholds(metric, given.values);
  return given.values.empty() ? std::vector<double>{standard} : given.values;
}

// As a number where there is one threshold.
Tensor one_or_all(const Tensor& x) { return x.numel() == 1 ? x.reshape({}) : x; }

Tensor ratio(const Tensor& part, const Tensor& whole) {
  return at::where(whole.eq(0), scalar(0, kFloat64), part / whole);
}

/// So many thresholds over [0, 1], evenly.
std::vector<double> even_thresholds(int64_t count) {
  std::vector<double> all;
  for (int64_t i = 0; i < count; ++i) {
    all.push_back(static_cast<double>(i) / static_cast<double>(count - 1));
  }
  return all;
}

template <CountMember kMember>
class CountMetric : public MetricImpl<CountOptions, ConfusionMetric> {
 public:
  CountMetric(CountOptions o, const char* standard_name)
      : MetricImpl(internal::named(std::move(o), standard_name)) {
    ConfusionRule rule;
    rule.thresholds = thresholds_of(name(), config().thresholds, 0.5);
    rule.evenly = internal::divide_evenly(rule.thresholds);
    set_rule(std::move(rule));
    add_sum(kMember, "accumulator");
  }
  Tensor result() override { return one_or_all(sum(kMember)); }
};

struct TruePositivesMetric final : CountMetric<&ConfusionCounts::true_positives> {
  explicit TruePositivesMetric(CountOptions o) : CountMetric(std::move(o), "true_positives") {}
};
struct TrueNegativesMetric final : CountMetric<&ConfusionCounts::true_negatives> {
  explicit TrueNegativesMetric(CountOptions o) : CountMetric(std::move(o), "true_negatives") {}
};
struct FalsePositivesMetric final : CountMetric<&ConfusionCounts::false_positives> {
  explicit FalsePositivesMetric(CountOptions o) : CountMetric(std::move(o), "false_positives") {}
};
struct FalseNegativesMetric final : CountMetric<&ConfusionCounts::false_negatives> {
  explicit FalseNegativesMetric(CountOptions o) : CountMetric(std::move(o), "false_negatives") {}
};

/// True positives over them and those of another kind.
class ShareMetric : public MetricImpl<PrecisionOptions, ConfusionMetric> {
 public:
  ShareMetric(PrecisionOptions o, const char* standard_name, CountMember other,
              const char* other_name)
      : MetricImpl(internal::named(std::move(o), standard_name)), other_(other) {
    COHORT_CHECK_ARG(config().top_k.value_or(1) > 0, "[", name(), "] expected top_k above 0, got ",
                     config().top_k.value_or(1));
    COHORT_CHECK_ARG(config().class_id.value_or(0) >= 0, "[", name(),
                     "] expected class_id of 0 or more, got ", config().class_id.value_or(0));
    ConfusionRule rule;
    rule.thresholds = thresholds_of(name(), config().thresholds, config().top_k ? -1e10 : 0.5);
    rule.evenly = internal::divide_evenly(rule.thresholds);
    rule.top_k = config().top_k;
    rule.class_id = config().class_id;
    set_rule(std::move(rule));
    add_sum(&ConfusionCounts::true_positives, "true_positives");
    add_sum(other, other_name);
  }
  Direction direction() const override { return Direction::kUp; }
  Tensor result() override {
    const Tensor right = true_positives();
    return one_or_all(ratio(right, right + sum(other_)));
  }

 private:
  const CountMember other_;
};

struct PrecisionMetric final : ShareMetric {
  explicit PrecisionMetric(PrecisionOptions o)
      : ShareMetric(std::move(o), "precision", &ConfusionCounts::false_positives,
                    "false_positives") {}
};
struct RecallMetric final : ShareMetric {
  explicit RecallMetric(PrecisionOptions o)
      : ShareMetric(std::move(o), "recall", &ConfusionCounts::false_negatives, "false_negatives") {}
};

/// What one of the four is told, with the name that Keras has for its bound.
struct BoundOptions : AtOptions {
  double bound = 0;
  BoundOptions() = default;
  BoundOptions(double least, AtOptions o) : AtOptions(std::move(o)), bound(least) {}
};
struct SpecificityBound : BoundOptions {
  using BoundOptions::BoundOptions;
  static void fields(auto& c, auto&& f) {
    f("class_id", c.class_id);
    f("num_thresholds", c.num_thresholds);
    f.required("specificity", c.bound);
  }
};
struct SensitivityBound : BoundOptions {
  using BoundOptions::BoundOptions;
  static void fields(auto& c, auto&& f) {
    f("class_id", c.class_id);
    f("num_thresholds", c.num_thresholds);
    f.required("sensitivity", c.bound);
  }
};
struct RecallBound : BoundOptions {
  using BoundOptions::BoundOptions;
  static void fields(auto& c, auto&& f) {
    f("class_id", c.class_id);
    f("num_thresholds", c.num_thresholds);
    f.required("recall", c.bound);
  }
};
struct PrecisionBound : BoundOptions {
  using BoundOptions::BoundOptions;
  static void fields(auto& c, auto&& f) {
    f("class_id", c.class_id);
    f("num_thresholds", c.num_thresholds);
    f.required("precision", c.bound);
  }
};

// A metric keeps four numbers for each, and more than the most is a slip.
void check_count_of_thresholds(const std::string& name, int64_t count, int64_t least) {
  constexpr int64_t kMost = int64_t{1} << 24;
  COHORT_CHECK_ARG(count >= least && count <= kMost, "[", name, "] expected num_thresholds from ",
                   least, " to ", kMost, ", got ", count);
}

/// The greatest of one value at the thresholds where another one is at least the bound.
template <class C>
class BestAt : public MetricImpl<C, ConfusionMetric> {
 public:
  BestAt(C o, const char* standard_name)
      : MetricImpl<C, ConfusionMetric>(internal::named(std::move(o), standard_name)) {
    const C& own = this->config();
    COHORT_CHECK_ARG(own.bound >= 0 && own.bound <= 1, "[", this->name(),
                     "] expected a bound in [0, 1], got ", own.bound);
    check_count_of_thresholds(this->name(), own.num_thresholds, 1);
    COHORT_CHECK_ARG(own.class_id.value_or(0) >= 0, "[", this->name(),
                     "] expected class_id of 0 or more, got ", own.class_id.value_or(0));
    ConfusionRule rule;
    rule.thresholds =
        own.num_thresholds == 1 ? std::vector<double>{0.5} : even_thresholds(own.num_thresholds);
    rule.evenly = own.num_thresholds > 1;
    rule.class_id = own.class_id;
    this->set_rule(std::move(rule));
    this->add_all_sums();
  }
  Direction direction() const override { return Direction::kUp; }

 protected:
  Tensor best(const Tensor& value, const Tensor& bounded) const {
    const Tensor none = scalar(0, kFloat64);
    return at::where(bounded.ge(this->config().bound), value, none).max();
  }
  Tensor sensitivity() const {
    const Tensor right = this->true_positives();
    return ratio(right, right + this->false_negatives());
  }
  Tensor specificity() const {
    const Tensor right = this->true_negatives();
    return ratio(right, right + this->false_positives());
  }
  Tensor precision() const {
    const Tensor right = this->true_positives();
    return ratio(right, right + this->false_positives());
  }
};

struct SensitivityAtSpecificityMetric final : BestAt<SpecificityBound> {
  explicit SensitivityAtSpecificityMetric(SpecificityBound o)
      : BestAt(std::move(o), "sensitivity_at_specificity") {}
  Tensor result() override { return best(sensitivity(), specificity()); }
};
struct SpecificityAtSensitivityMetric final : BestAt<SensitivityBound> {
  explicit SpecificityAtSensitivityMetric(SensitivityBound o)
      : BestAt(std::move(o), "specificity_at_sensitivity") {}
  Tensor result() override { return best(specificity(), sensitivity()); }
};
struct PrecisionAtRecallMetric final : BestAt<RecallBound> {
  explicit PrecisionAtRecallMetric(RecallBound o) : BestAt(std::move(o), "precision_at_recall") {}
  Tensor result() override { return best(precision(), sensitivity()); }
};
struct RecallAtPrecisionMetric final : BestAt<PrecisionBound> {
  explicit RecallAtPrecisionMetric(PrecisionBound o)
      : BestAt(std::move(o), "recall_at_precision") {}
  Tensor result() override { return best(sensitivity(), precision()); }
};

/// Texts as Keras reads them, in small or capital letters.
std::string one_of(const std::string& metric, const char* option, std::string given,
                   const std::array<const char*, 3>& known) {
  for (const char* name : known) {
    const std::string_view text = name;
    const bool same = std::ranges::equal(
        given, text, [](char a, char b) { return std::tolower(a) == std::tolower(b); });
    if (same) return name;
  }
  throw InvalidArgument(str_cat("[", metric, "] expected ", option, " \"", known[0], "\", \"",
                                known[1], "\" or \"", known[2], "\", got \"", given, "\""));
}

AUCOptions checked_auc(AUCOptions o) {
  o = internal::named(std::move(o), "auc");
  o.curve = one_of(o.name, "curve", o.curve, {"ROC", "PR", "PRGAIN"});
  o.summation_method = one_of(o.name, "summation_method", o.summation_method,
                              {"interpolation", "minoring", "majoring"});
  if (o.thresholds) {
    check_thresholds(o.name, *o.thresholds);
    std::ranges::sort(*o.thresholds);
    o.num_thresholds = static_cast<int64_t>(o.thresholds->size()) + 2;
  }
  check_count_of_thresholds(o.name, o.num_thresholds, 2);
  COHORT_CHECK_ARG(!o.num_labels || o.multi_label, "[", o.name,
                   "] expected num_labels with multi_label only, got ", o.num_labels.value_or(0));
  COHORT_CHECK_ARG(o.num_labels.value_or(1) > 0, "[", o.name, "] expected num_labels above 0, got ",
                   o.num_labels.value_or(1));
  return o;
}

ConfusionRule auc_rule(const AUCOptions& o) {
  ConfusionRule rule;
  rule.thresholds = even_thresholds(o.num_thresholds);
  if (o.thresholds) std::ranges::copy(*o.thresholds, rule.thresholds.begin() + 1);
  rule.evenly = !o.thresholds || internal::divide_evenly(rule.thresholds);
  // So that 0 is above the first and 1 not above the last.
  rule.thresholds.front() = -1e-7;
  rule.thresholds.back() = 1 + 1e-7;
  rule.first_below_zero = true;
  rule.per_label = o.multi_label;
  if (!o.multi_label) rule.label_weights = o.label_weights.values;
  return rule;
}

class AUCMetric final : public MetricImpl<AUCOptions, ConfusionMetric> {
 public:
  explicit AUCMetric(AUCOptions o) : MetricImpl(checked_auc(std::move(o))) {
    set_rule(auc_rule(config()));
    if (!config().multi_label) {
      add_all_sums();
    } else if (config().num_labels) {
      make_sums(*config().num_labels);
    } else {
      wait_for_shapes();
    }
  }
  Direction direction() const override { return Direction::kUp; }

  void build(const Shape&, const Shape& y_pred) override {
    COHORT_CHECK_ARG(y_pred.size() == 2, "[", name(),
                     "] expected predictions of shape [b, labels] with multi_label, got ",
                     bracketed(y_pred));
    make_sums(y_pred[1]);
  }

  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    ConfusionMetric::update_state(y_true, config().from_logits ? y_pred.sigmoid() : y_pred,
                                  sample_weight);
  }

  Tensor result() override {
    if (waits_for_shapes()) return scalar(0, kFloat64);
    const Tensor areas = area();
    if (!config().multi_label) return areas;
    if (config().label_weights.values.empty()) return areas.mean();
    const Tensor weights = from_vector(config().label_weights.values, {areas.size(0)});
    return ratio((areas * weights).sum(), weights.sum());
  }

 private:
  void make_sums(int64_t labels) {
    const auto weights = static_cast<int64_t>(config().label_weights.values.size());
    COHORT_CHECK_ARG(weights == 0 || weights == labels, "[", name(),
                     "] expected a weight for each of ", labels, " labels, got ", weights);
    add_all_sums(labels);
  }

  static Tensor upper(const Tensor& x) { return x.slice(0, 0, x.size(0) - 1); }
  static Tensor lower(const Tensor& x) { return x.slice(0, 1); }

  /// Of each label.
  Tensor area() const {
    const Tensor tp = true_positives(), fp = false_positives();
    const Tensor tn = true_negatives(), fn = false_negatives();
    const bool interpolates = config().summation_method == "interpolation";
    if (config().curve == "PR" && interpolates) return interpolated_pr(tp, fp, fn);
    Tensor x, y;
    if (config().curve == "ROC") {
      x = ratio(fp, fp + tn);
      y = ratio(tp, tp + fn);
    } else if (config().curve == "PR") {
      x = ratio(tp, tp + fn);
      y = ratio(tp, tp + fp);
    } else {
      const Tensor none = tp.eq(0);
      const Tensor odds = ratio(tp + fn, tn + fp);
      x = (1 - odds * ratio(fn, tp)).masked_fill(none, 0).clamp_min(0);
      y = (1 - odds * ratio(fp, tp)).masked_fill(none, 1);
    }
    Tensor heights = (upper(y) + lower(y)) / 2;
    if (config().summation_method == "minoring") heights = upper(y).minimum(lower(y));
    if (config().summation_method == "majoring") heights = upper(y).maximum(lower(y));
    return ((upper(x) - lower(x)) * heights).sum(0);
  }

  // Between two thresholds true and all positives are on a line, precision is not (Davis and
  // Goadrich).
  static Tensor interpolated_pr(const Tensor& tp, const Tensor& fp, const Tensor& fn) {
    const Tensor p = tp + fp;
    const Tensor more_right = upper(tp) - lower(tp);
    const Tensor slope = ratio(more_right, (upper(p) - lower(p)).clamp_min(0));
    const Tensor intercept = lower(tp) - slope * lower(p);
    const Tensor both = upper(p).gt(0).logical_and(lower(p).gt(0));
    const Tensor safe =
        at::where(both, ratio(upper(p), lower(p).clamp_min(0)), scalar(1, kFloat64));
    return ratio(slope * (more_right + intercept * safe.log()),
                 (lower(tp) + lower(fn)).clamp_min(0))
        .sum(0);
  }
};

}  // namespace

void internal::add_confusion_metrics(ClassTable& table) {
  table.add_builtin<AUCMetric>();
  table.add_builtin<FalseNegativesMetric>();
  table.add_builtin<FalsePositivesMetric>();
  table.add_builtin<PrecisionAtRecallMetric>();
  table.add_builtin<PrecisionMetric>();
  table.add_builtin<RecallAtPrecisionMetric>();
  table.add_builtin<RecallMetric>();
  table.add_builtin<SensitivityAtSpecificityMetric>();
  table.add_builtin<SpecificityAtSensitivityMetric>();
  table.add_builtin<TrueNegativesMetric>();
  table.add_builtin<TruePositivesMetric>();
}

Config ConfigValue<Thresholds>::write(const Thresholds& thresholds) {
  if (thresholds.is_list) return Config::List(thresholds.values.begin(), thresholds.values.end());
  return thresholds.values.empty() ? Config() : Config(thresholds.values.front());
}
Thresholds ConfigValue<Thresholds>::read(const Config& config) {
  if (config.is_null()) return {};
  if (!config.is_list()) return config.number();
  return ConfigValue<std::vector<double>>::read(config);
}

Config ConfigValue<LabelWeights>::write(const LabelWeights& weights) {
  if (weights.values.empty()) return {};
  const Config::List values(weights.values.begin(), weights.values.end());
  return Config::object({{"class_name", "__tensor__"},
                         {"config", Config::object({{"value", values}, {"dtype", "float32"}})}});
}
LabelWeights ConfigValue<LabelWeights>::read(const Config& config) {
  if (config.is_null()) return {};
  const Config& values = config.is_object() ? config.at("config").at("value") : config;
  return ConfigValue<std::vector<double>>::read(values);
}

TruePositives::TruePositives(CountOptions options)
    : Metric(std::make_shared<TruePositivesMetric>(std::move(options))) {}
TrueNegatives::TrueNegatives(CountOptions options)
    : Metric(std::make_shared<TrueNegativesMetric>(std::move(options))) {}
FalsePositives::FalsePositives(CountOptions options)
    : Metric(std::make_shared<FalsePositivesMetric>(std::move(options))) {}
FalseNegatives::FalseNegatives(CountOptions options)
    : Metric(std::make_shared<FalseNegativesMetric>(std::move(options))) {}
Precision::Precision(PrecisionOptions options)
    : Metric(std::make_shared<PrecisionMetric>(std::move(options))) {}
Recall::Recall(PrecisionOptions options)
    : Metric(std::make_shared<RecallMetric>(std::move(options))) {}
SensitivityAtSpecificity::SensitivityAtSpecificity(double specificity, AtOptions options)
    : Metric(std::make_shared<SensitivityAtSpecificityMetric>(
          SpecificityBound(specificity, std::move(options)))) {}
SpecificityAtSensitivity::SpecificityAtSensitivity(double sensitivity, AtOptions options)
    : Metric(std::make_shared<SpecificityAtSensitivityMetric>(
          SensitivityBound(sensitivity, std::move(options)))) {}
PrecisionAtRecall::PrecisionAtRecall(double recall, AtOptions options)
    : Metric(std::make_shared<PrecisionAtRecallMetric>(RecallBound(recall, std::move(options)))) {}
RecallAtPrecision::RecallAtPrecision(double precision, AtOptions options)
    : Metric(std::make_shared<RecallAtPrecisionMetric>(
          PrecisionBound(precision, std::move(options)))) {}
AUC::AUC(AUCOptions options) : Metric(std::make_shared<AUCMetric>(std::move(options))) {}

}  // namespace cohort::keras
