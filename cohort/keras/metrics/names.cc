// SPDX-License-Identifier: Apache-2.0
//
// Metrics by the names that Keras knows them by.
#include <array>

#include "cohort/base/check.h"
#include "cohort/base/handle.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/metrics/internal/classes.h"
#include "cohort/keras/metrics/internal/sums.h"
#include "cohort/keras/metrics/metrics.h"

namespace cohort::keras {
namespace {

struct NamedMetric {
  const char* class_name;
  std::array<const char*, 3> names;
  Direction direction;
  bool is_loss = false;
};

constexpr std::array<NamedMetric, 38> kNamedMetrics = {{
    {"SparseCategoricalAccuracy", {"sparse_categorical_accuracy"}, Direction::kUp},
    {"CategoricalAccuracy", {"categorical_accuracy"}, Direction::kUp},
    {"BinaryAccuracy", {"binary_accuracy"}, Direction::kUp},
    {"TopKCategoricalAccuracy", {"top_k_categorical_accuracy"}, Direction::kUp},
    {"SparseTopKCategoricalAccuracy", {"sparse_top_k_categorical_accuracy"}, Direction::kUp},
    {"MeanSquaredError", {"mean_squared_error", "mse", "MSE"}, Direction::kDown},
    {"MeanAbsoluteError", {"mean_absolute_error", "mae", "MAE"}, Direction::kDown},
    {"AUC", {"auc"}, Direction::kUp},
    {"BinaryIoU", {"binary_io_u"}, Direction::kUp},
    {"ConcordanceCorrelation", {"concordance_correlation"}, Direction::kUp},
    {"CosineSimilarity", {"cosine_similarity"}, Direction::kUp},
    {"F1Score", {"f1_score"}, Direction::kUp},
    {"FBetaScore", {"f_beta_score", "fbeta_score"}, Direction::kUp},
    {"PearsonCorrelation", {"pearson_correlation"}, Direction::kUp},
    {"Precision", {"precision"}, Direction::kUp},
    {"R2Score", {"r2_score"}, Direction::kUp},
    {"Recall", {"recall"}, Direction::kUp},
    {"BinaryCrossentropy", {"binary_crossentropy", "bce", "BCE"}, Direction::kDown},
    {"CategoricalCrossentropy", {"categorical_crossentropy"}, Direction::kDown},
    {"CategoricalHinge", {"categorical_hinge"}, Direction::kDown},
    {"Hinge", {"hinge"}, Direction::kDown},
    {"KLDivergence", {"kl_divergence", "kld", "KLD"}, Direction::kDown},
    {"LogCoshError", {"log_cosh_error", "log_cosh", "logcosh"}, Direction::kDown},
    {"MeanAbsolutePercentageError",
     {"mean_absolute_percentage_error", "mape", "MAPE"},
     Direction::kDown},
    {"MeanSquaredLogarithmicError",
     {"mean_squared_logarithmic_error", "msle", "MSLE"},
     Direction::kDown},
    {"Poisson", {"poisson"}, Direction::kDown},
    {"RootMeanSquaredError", {"root_mean_squared_error"}, Direction::kDown},
    {"SparseCategoricalCrossentropy", {"sparse_categorical_crossentropy"}, Direction::kDown},
    {"SquaredHinge", {"squared_hinge"}, Direction::kDown},
    {"FalseNegatives", {"false_negatives"}, Direction::kUnknown},
    {"FalsePositives", {"false_positives"}, Direction::kUnknown},
    {"Mean", {"mean"}, Direction::kUnknown},
    {"Sum", {"sum"}, Direction::kUnknown},
    {"TrueNegatives", {"true_negatives"}, Direction::kUnknown},
    {"TruePositives", {"true_positives"}, Direction::kUnknown},
    // Of these keras.metrics has functions only: the mean of the loss.
    {"BinaryFocalCrossentropy", {"binary_focal_crossentropy"}, Direction::kDown, true},
    {"CategoricalFocalCrossentropy", {"categorical_focal_crossentropy"}, Direction::kDown, true},
    {"Huber", {"huber"}, Direction::kDown, true},
}};

Metric make_named(const NamedMetric& named, const std::string& name) {
  if (named.is_loss) {
    return internal::function_metric(
        [loss = Loss(named.class_name)](const Tensor& y_true, const Tensor& y_pred) {
          return loss.base().call(y_true, y_pred);
        },
        name, named.direction);
  }
  return Metric::deserialize(Config::object({{"module", "keras.metrics"},
                                             {"class_name", named.class_name},
                                             {"config", Config::object({{"name", name}})}}));
}

bool is_accuracy(const std::string& name) {
  return name == "accuracy" || name == "acc" || name == "Accuracy";
}

const NamedMetric* find_named(const std::string& name) {
  for (const NamedMetric& metric : kNamedMetrics) {
    if (name == metric.class_name) return &metric;
    for (const char* candidate : metric.names) {
      if (candidate != nullptr && name == candidate) return &metric;
    }
  }
  return nullptr;
}

// Of a name that checked() took. It is empty in a Metric that was moved from.
const NamedMetric& taken_name(const std::string& name) {
  if (name.empty()) cohort::internal::base::refuse_empty_handle("Metric", "");
  return *find_named(name);
}

std::string checked(const std::string& name) {
  if (is_accuracy(name) || find_named(name) != nullptr) return name;
  std::string known = "accuracy";
  for (const NamedMetric& metric : kNamedMetrics) known += std::string(", ") + metric.names[0];
  throw InvalidArgument(str_cat("[metric] expected one of ", known, ", got \"", name, "\""));
}

Metric accuracy_for(const std::string& name, const Shape& y_true, const Shape& y_pred) {
  COHORT_CHECK_ARG(!y_pred.empty(), "[metric] expected predictions with a last axis for \"", name,
                   "\", got a scalar");
  if (y_pred.back() == 1) return BinaryAccuracy(name);
  const bool one_column = !y_true.empty() && y_true.back() == 1 && y_pred.back() > 1;
  if (y_true.size() < y_pred.size() || one_column) return SparseCategoricalAccuracy(name);
  return CategoricalAccuracy(name);
}

}  // namespace

namespace internal {
template <>
ClassTable& class_table<MetricBase>() {
  static auto* table = [] {
    auto* all = new ClassTable(MetricBase::kKind, "keras.metrics");
    add_means(*all);
    add_class_accuracies(*all);
    add_confusion_metrics(*all);
    add_function_metrics(*all);
    add_overlap_metrics(*all);
    return all;
  }();
  return *table;
}
}  // namespace internal

Metric::Metric(const char* name) : deferred_(checked(name)) {}
Metric::Metric(const std::string& name) : deferred_(checked(name)) {}

Direction Metric::direction() const {
  if (!is_name()) return metric_->direction();
  if (function_ != nullptr) return Direction::kUnknown;
  return is_accuracy(deferred_) ? Direction::kUp : taken_name(deferred_).direction;
}

Metric Metric::resolve(const Shape& y_true, const Shape& y_pred) const {
  if (!is_name()) {
    metric_->ensure_built(y_true, y_pred);
    return *this;
  }
  if (function_ != nullptr) {
    return internal::function_metric(function_, deferred_, Direction::kUnknown);
  }
  if (is_accuracy(deferred_)) return accuracy_for(deferred_, y_true, y_pred);
  const Metric made = make_named(taken_name(deferred_), deferred_);
  made.base().ensure_built(y_true, y_pred);
  return made;
}

}  // namespace cohort::keras
