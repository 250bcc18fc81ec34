// SPDX-License-Identifier: Apache-2.0
//
// Metrics by the names that Keras knows them by.
#include <array>

#include "cohort/base/check.h"
#include "cohort/keras/metrics/internal/classes.h"
#include "cohort/keras/metrics/metrics.h"

namespace cohort::keras {
namespace {

struct Named {
  std::array<const char*, 4> names;
  Metric (*make)(const std::string& name);
  Direction direction = Direction::kUp;
};

const std::array<Named, 7>& named_metrics() {
  static const std::array<Named, 7> metrics = {{
      {{"sparse_categorical_accuracy", "SparseCategoricalAccuracy"},
       [](const std::string& name) { return Metric(SparseCategoricalAccuracy(name)); }},
      {{"categorical_accuracy", "CategoricalAccuracy"},
       [](const std::string& name) { return Metric(CategoricalAccuracy(name)); }},
      {{"binary_accuracy", "BinaryAccuracy"},
       [](const std::string& name) { return Metric(BinaryAccuracy(name)); }},
      {{"top_k_categorical_accuracy", "TopKCategoricalAccuracy"},
       [](const std::string& name) { return Metric(TopKCategoricalAccuracy(5, name)); }},
      {{"sparse_top_k_categorical_accuracy", "SparseTopKCategoricalAccuracy"},
       [](const std::string& name) { return Metric(SparseTopKCategoricalAccuracy(5, name)); }},
      {{"mean_squared_error", "MeanSquaredError", "mse", "MSE"},
       [](const std::string& name) { return Metric(metrics::MeanSquaredError(name)); },
       Direction::kDown},
      {{"mean_absolute_error", "MeanAbsoluteError", "mae", "MAE"},
       [](const std::string& name) { return Metric(metrics::MeanAbsoluteError(name)); },
       Direction::kDown},
  }};
  return metrics;
}

bool is_accuracy(const std::string& name) {
  return name == "accuracy" || name == "acc" || name == "Accuracy";
}

const Named* find(const std::string& name) {
  for (const Named& metric : named_metrics()) {
    for (const char* candidate : metric.names) {
      if (candidate != nullptr && name == candidate) return &metric;
    }
  }
  return nullptr;
}

std::string checked(const std::string& name) {
  if (is_accuracy(name) || find(name) != nullptr) return name;
  std::string known = "accuracy";
  for (const Named& metric : named_metrics()) known += std::string(", ") + metric.names[0];
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
    return all;
  }();
  return *table;
}
}  // namespace internal

Metric::Metric(const char* name) : deferred_(checked(name)) {}
Metric::Metric(const std::string& name) : deferred_(checked(name)) {}

Direction Metric::direction() const {
  if (!is_name()) return metric_->direction();
  return is_accuracy(deferred_) ? Direction::kUp : find(deferred_)->direction;
}

Metric Metric::resolve(const Shape& y_true, const Shape& y_pred) const {
  if (!is_name()) return *this;
  if (is_accuracy(deferred_)) return accuracy_for(deferred_, y_true, y_pred);
  return find(deferred_)->make(deferred_);
}

}  // namespace cohort::keras
