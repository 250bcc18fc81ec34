// SPDX-License-Identifier: Apache-2.0
//
// F-scores and intersections over unions.
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <numeric>

#include "cohort/base/check.h"
#include "cohort/keras/internal/align_ranks.h"
#include "cohort/keras/metrics/classification.h"
#include "cohort/keras/metrics/internal/classes.h"
#include "cohort/keras/metrics/internal/mean_state.h"
#include "cohort/keras/metrics/internal/sums.h"

namespace cohort::keras {
namespace {

constexpr double kSmall = 1e-7;  // Keras's backend.epsilon()

template <class C>
double beta_of(const C& options) {
  if constexpr (requires { options.beta; }) {
    return options.beta;
  } else {
    return 1;
  }
}

template <class C>
class FScore : public MetricImpl<C> {
 public:
  FScore(C o, const char* standard_name)
      : MetricImpl<C>(internal::named(std::move(o), standard_name)) {
    const C& own = this->config();
    const std::string how = own.average.value_or("micro");
    COHORT_CHECK_ARG(how == "micro" || how == "macro" || how == "weighted", "[", this->name(),
                     "] expected average \"micro\", \"macro\", \"weighted\" or none, got \"", how,
                     "\"");
    COHORT_CHECK_ARG(beta_of(own) > 0, "[", this->name(), "] expected beta above 0, got ",
                     beta_of(own));
    COHORT_CHECK_ARG(own.threshold.value_or(1) > 0 && own.threshold.value_or(1) <= 1, "[",
                     this->name(), "] expected a threshold in (0, 1], got ",
                     own.threshold.value_or(1));
    this->wait_for_shapes();
  }
  Direction direction() const override { return Direction::kUp; }

  void build(const Shape&, const Shape& y_pred) override {
    check(y_pred.size() == 2, bracketed(y_pred));
    const Shape shape = is_micro() ? Shape{} : Shape{y_pred[1]};
    true_positives_ = this->add_variable(shape, "true_positives");
    false_positives_ = this->add_variable(shape, "false_positives");
    false_negatives_ = this->add_variable(shape, "false_negatives");
    weights_ = this->add_variable(shape, "intermediate_weights");
  }

  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    if (y_pred.numel() == 0) return;
    check(y_pred.dim() == 2 && y_true.sizes() == y_pred.sizes(),
          bracketed(y_true.sizes()) + " and " + bracketed(y_pred.sizes()));
    const Tensor scores = y_pred.to(kFloat32);
    const auto& threshold = this->config().threshold;
    const Tensor positive =
        threshold ? scores.gt(static_cast<float>(*threshold))
                  : scores.ge(scores.amax(-1, /*keepdim=*/true)).logical_and(scores.abs().gt(1e-9));
    const Tensor p = positive.to(kFloat64), y = y_true.to(kFloat64);
    Tensor weight;
    if (sample_weight.defined()) {
      COHORT_CHECK_ARG(sample_weight.numel() == y.size(0), "[", this->name(),
                       ".update_state] expected sample weights of shape [", y.size(0), "], got ",
                       bracketed(sample_weight.sizes()));
      weight = sample_weight.to(kFloat64).reshape({-1, 1});
    }
    add(true_positives_, p * y, weight);
    add(false_positives_, p * (1 - y), weight);
    add(false_negatives_, (1 - p) * y, weight);
    add(weights_, y, weight);
  }

  Tensor result() override {
    if (this->waits_for_shapes()) return scalar(0, kFloat64);
    const Tensor right = internal::read_tensor(true_positives_);
    const Tensor precision = right / (right + internal::read_tensor(false_positives_) + kSmall);
    const Tensor recall = right / (right + internal::read_tensor(false_negatives_) + kSmall);
    const double square = beta_of(this->config()) * beta_of(this->config());
    const Tensor score = precision * recall / (precision * square + recall + kSmall) * (1 + square);
    const auto& average = this->config().average;
    if (!average) return score;
    if (*average != "weighted") return score.mean();
    const Tensor weights = internal::read_tensor(weights_);
    return (score * (weights / (weights.sum() + kSmall))).sum();
  }

 private:
  bool is_micro() const { return this->config().average == "micro"; }
  void check(bool fits, const std::string& got) const {
    COHORT_CHECK_ARG(fits, "[", this->name(),
                     "] expected targets and predictions of shape [b, classes], got ", got);
  }
  void add(const Variable& sum, const Tensor& x, const Tensor& weight) const {
    const Tensor weighted = weight.defined() ? x * weight : x;
    internal::add_tensor(sum, is_micro() ? weighted.sum() : weighted.sum(0));
  }

  Variable true_positives_, false_positives_, false_negatives_, weights_;
};

struct F1ScoreMetric final : FScore<F1ScoreOptions> {
  explicit F1ScoreMetric(F1ScoreOptions o) : FScore(std::move(o), "f1_score") {}
};
struct FBetaScoreMetric final : FScore<FBetaScoreOptions> {
  explicit FBetaScoreMetric(FBetaScoreOptions o) : FScore(std::move(o), "fbeta_score") {}
};

/// What an intersection over union is computed of.
struct IoURule {
  int64_t num_classes = 0;
  std::vector<int64_t> classes;
  std::optional<int64_t> ignored = {};
  bool sparse_y_true = true;
  bool sparse_y_pred = true;
  int64_t axis = -1;
  bool whole_weights = true;
};

class IoUBase : public MetricBase {
 public:
  using MetricBase::MetricBase;
  Direction direction() const override { return Direction::kUp; }

  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    if (y_true.numel() == 0 || y_pred.numel() == 0) return;
    const Tensor labels = numbers(y_true, rule_.sparse_y_true);
    const Tensor found = numbers(y_pred, rule_.sparse_y_pred);
    COHORT_CHECK_ARG(labels.numel() == found.numel(), "[", name(),
                     ".update_state] expected a prediction for each of ", labels.numel(),
                     " targets, got ", found.numel());
    Tensor weights;
    if (sample_weight.defined()) {
      Tensor w = rule_.whole_weights ? sample_weight.to(kInt64) : sample_weight;
      w = w.to(labels.device(), kFloat64);
      if (w.numel() > 1 && rows_of(y_true, w)) {  // one for all of a row
        while (w.dim() < y_true.dim()) w = w.unsqueeze(-1);
        w = w.expand_as(y_true);
      }
      COHORT_CHECK_ARG(w.numel() == 1 || w.numel() == labels.numel(), "[", name(),
                       ".update_state] expected ", labels.numel(), " sample weights, got shape ",
                       bracketed(sample_weight.sizes()));
      weights = w.reshape({-1}).expand({labels.numel()}).contiguous();
    }
    if (internal::is_on_device(matrix_)) {
      internal::add_tensor(matrix_, count_on_device(labels, found, weights));
    } else {
      internal::add_numbers(matrix_, count(labels, found, weights));
    }
  }

  Tensor result() override {
    const Tensor matrix = internal::read_tensor(matrix_);
    const Tensor ids = from_vector(rule_.classes, {static_cast<int64_t>(rule_.classes.size())});
    const Tensor both = matrix.diagonal().index_select(0, ids);
    const Tensor either = (matrix.sum(0) + matrix.sum(1) - matrix.diagonal()).index_select(0, ids);
    const Tensor valid = either.gt(1e-9);
    const Tensor shares = at::where(valid, both / (either + kSmall), scalar(0, kFloat64));
    return shares.sum() / (valid.sum().to(kFloat64) + kSmall);
  }

 protected:
  void begin(IoURule rule) {
    check_classes(rule.num_classes);
    COHORT_CHECK_ARG(!rule.classes.empty(), "[", name(),
                     "] expected at least one class in target_class_ids, got none");
    for (const int64_t id : rule.classes) {
      COHORT_CHECK_ARG(id >= 0 && id < rule.num_classes, "[", name(),
                       "] expected target_class_ids in [0, ", rule.num_classes, "), got ", id);
    }
    rule_ = std::move(rule);
    matrix_ = add_variable({rule_.num_classes, rule_.num_classes}, "total_confusion_matrix");
  }
  /// Errors: InvalidArgument for more than a matrix of them could count.
  void check_classes(int64_t count) const {
    constexpr int64_t kMostClasses = int64_t{1} << 15;
    COHORT_CHECK_ARG(count > 0 && count <= kMostClasses, "[", name(),
                     "] expected num_classes above 0, up to ", kMostClasses, ", got ", count);
  }
  static std::vector<int64_t> all_classes(int64_t count) {
    std::vector<int64_t> all(static_cast<std::size_t>(std::max<int64_t>(0, count)));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

 private:
  // Whether the weights are of the first axes of class numbers.
  bool rows_of(const Tensor& y_true, const Tensor& weights) const {
    const auto axes = static_cast<std::size_t>(weights.dim());
    return rule_.sparse_y_true && weights.dim() < y_true.dim() &&
           y_true.sizes().slice(0, axes) == weights.sizes();
  }
  Tensor numbers(const Tensor& x, bool sparse) const {
    const Tensor labels = sparse ? x : x.argmax(rule_.axis);
    const c10::Device place = internal::is_on_device(matrix_) ? labels.device() : at::kCPU;
    return labels.to(place, kInt64).reshape({-1}).contiguous();
  }
  // What does not count goes into a place behind the matrix.
  Tensor count_on_device(const Tensor& labels, const Tensor& found, const Tensor& weights) const {
    const int64_t classes = rule_.num_classes, places = classes * classes;
    Tensor outside = labels.lt(0).logical_or_(labels.ge(classes));
    outside.logical_or_(found.lt(0)).logical_or_(found.ge(classes));
    if (rule_.ignored) outside.logical_or_(labels.eq(*rule_.ignored));
    const Tensor place = (labels * classes).add_(found).masked_fill_(outside, places);
    Tensor sums = at::zeros({places + 1}, labels.options().dtype(kFloat64));
    if (weights.defined()) {
      sums.scatter_add_(0, place, weights);
    } else {
      sums.scatter_(0, place, 1, "add");
    }
    return sums.slice(0, 0, places).view({classes, classes});
  }
  std::vector<double> count(const Tensor& labels, const Tensor& found,
                            const Tensor& weights) const {
    const int64_t classes = rule_.num_classes;
    std::vector<double> sums(static_cast<std::size_t>(classes * classes));
    const auto* y = labels.const_data_ptr<int64_t>();
    const auto* p = found.const_data_ptr<int64_t>();
    const double* w = weights.defined() ? weights.const_data_ptr<double>() : nullptr;
    for (int64_t i = 0; i < labels.numel(); ++i) {
      const bool inside = y[i] >= 0 && y[i] < classes && p[i] >= 0 && p[i] < classes;
      if (!inside || rule_.ignored == y[i]) continue;
      sums[static_cast<std::size_t>(y[i] * classes + p[i])] += w == nullptr ? 1 : w[i];
    }
    return sums;
  }

  IoURule rule_;
  Variable matrix_;
};

// The options with what the constructors take besides.

struct IoUClasses : IoUOptions {
  int64_t num_classes = 0;
  std::vector<int64_t> target_class_ids = {};
  IoUClasses() = default;
  IoUClasses(int64_t n, std::vector<int64_t> ids, IoUOptions o)
      : IoUOptions(std::move(o)), num_classes(n), target_class_ids(std::move(ids)) {}
  static void fields(auto& c, auto&& f) {
    f.required("num_classes", c.num_classes);
    f.required("target_class_ids", c.target_class_ids);
    f("ignore_class", c.ignore_class);
    f("sparse_y_true", c.sparse_y_true);
    f("sparse_y_pred", c.sparse_y_pred);
    f("axis", c.axis);
  }
};
struct MeanIoUClasses : IoUClasses {
  using IoUClasses::IoUClasses;
  static void fields(auto& c, auto&& f) {
    f.required("num_classes", c.num_classes);
    f("ignore_class", c.ignore_class);
    f("sparse_y_true", c.sparse_y_true);
    f("sparse_y_pred", c.sparse_y_pred);
    f("axis", c.axis);
  }
};
struct OneHotIoUClasses : OneHotIoUOptions {
  int64_t num_classes = 0;
  std::vector<int64_t> target_class_ids = {};
  OneHotIoUClasses() = default;
  OneHotIoUClasses(int64_t n, std::vector<int64_t> ids, OneHotIoUOptions o)
      : OneHotIoUOptions(std::move(o)), num_classes(n), target_class_ids(std::move(ids)) {}
  static void fields(auto& c, auto&& f) {
    f.required("num_classes", c.num_classes);
    f.required("target_class_ids", c.target_class_ids);
    f("ignore_class", c.ignore_class);
    f("sparse_y_pred", c.sparse_y_pred);
    f("axis", c.axis);
  }
};
struct OneHotMeanIoUClasses : OneHotIoUClasses {
  using OneHotIoUClasses::OneHotIoUClasses;
  static void fields(auto& c, auto&& f) {
    f.required("num_classes", c.num_classes);
    f("ignore_class", c.ignore_class);
    f("sparse_y_pred", c.sparse_y_pred);
    f("axis", c.axis);
  }
};

template <class C>
class IoUOf : public MetricImpl<C, IoUBase> {
 public:
  IoUOf(C o, const char* standard_name)
      : MetricImpl<C, IoUBase>(internal::named(std::move(o), standard_name)) {
    const C& own = this->config();
    this->check_classes(own.num_classes);
    IoURule rule{.num_classes = own.num_classes,
                 .classes = own.target_class_ids,
                 .ignored = own.ignore_class,
                 .sparse_y_true = false,
                 .sparse_y_pred = own.sparse_y_pred,
                 .axis = own.axis,
                 .whole_weights = own.dtype.is_whole()};
    if constexpr (requires { own.sparse_y_true; }) rule.sparse_y_true = own.sparse_y_true;
    constexpr bool kAll = std::same_as<C, MeanIoUClasses> || std::same_as<C, OneHotMeanIoUClasses>;
    if (kAll) rule.classes = IoUBase::all_classes(own.num_classes);
    this->begin(std::move(rule));
  }
};

struct IoUMetric final : IoUOf<IoUClasses> {
  explicit IoUMetric(IoUClasses o) : IoUOf(std::move(o), "io_u") {}
};
struct MeanIoUMetric final : IoUOf<MeanIoUClasses> {
  explicit MeanIoUMetric(MeanIoUClasses o) : IoUOf(std::move(o), "mean_io_u") {}
};
struct OneHotIoUMetric final : IoUOf<OneHotIoUClasses> {
  explicit OneHotIoUMetric(OneHotIoUClasses o) : IoUOf(std::move(o), "one_hot_io_u") {}
};
struct OneHotMeanIoUMetric final : IoUOf<OneHotMeanIoUClasses> {
  explicit OneHotMeanIoUMetric(OneHotMeanIoUClasses o) : IoUOf(std::move(o), "one_hot_mean_io_u") {}
};

class BinaryIoUMetric final : public MetricImpl<BinaryIoUOptions, IoUBase> {
 public:
  explicit BinaryIoUMetric(BinaryIoUOptions o)
      : MetricImpl(internal::named(std::move(o), "binary_io_u")) {
    begin({.num_classes = 2,
           .classes = config().target_class_ids,
           .whole_weights = config().dtype.is_whole()});
  }
  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    IoUBase::update_state(y_true, y_pred.to(kFloat32).ge(static_cast<float>(config().threshold)),
                          sample_weight);
  }
};

}  // namespace

void internal::add_overlap_metrics(ClassTable& table) {
  table.add_builtin<BinaryIoUMetric>();
  table.add_builtin<F1ScoreMetric>();
  table.add_builtin<FBetaScoreMetric>();
  table.add_builtin<IoUMetric>();
  table.add_builtin<MeanIoUMetric>();
  table.add_builtin<OneHotIoUMetric>();
  table.add_builtin<OneHotMeanIoUMetric>();
}

F1Score::F1Score(F1ScoreOptions options)
    : Metric(std::make_shared<F1ScoreMetric>(std::move(options))) {}
FBetaScore::FBetaScore(FBetaScoreOptions options)
    : Metric(std::make_shared<FBetaScoreMetric>(std::move(options))) {}
IoU::IoU(int64_t num_classes, std::vector<int64_t> target_class_ids, IoUOptions options)
    : Metric(std::make_shared<IoUMetric>(
          IoUClasses(num_classes, std::move(target_class_ids), std::move(options)))) {}
MeanIoU::MeanIoU(int64_t num_classes, IoUOptions options)
    : Metric(std::make_shared<MeanIoUMetric>(MeanIoUClasses(num_classes, {}, std::move(options)))) {
}
BinaryIoU::BinaryIoU(BinaryIoUOptions options)
    : Metric(std::make_shared<BinaryIoUMetric>(std::move(options))) {}
OneHotIoU::OneHotIoU(int64_t num_classes, std::vector<int64_t> target_class_ids,
                     OneHotIoUOptions options)
    : Metric(std::make_shared<OneHotIoUMetric>(
          OneHotIoUClasses(num_classes, std::move(target_class_ids), std::move(options)))) {}
OneHotMeanIoU::OneHotMeanIoU(int64_t num_classes, OneHotIoUOptions options)
    : Metric(std::make_shared<OneHotMeanIoUMetric>(
          OneHotMeanIoUClasses(num_classes, {}, std::move(options)))) {}

}  // namespace cohort::keras
