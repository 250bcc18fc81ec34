// SPDX-License-Identifier: Apache-2.0
//
// Accuracies over classes: direct loops over the scores.
#include <cmath>
#include <type_traits>

#include "cohort/base/check.h"
#include "cohort/keras/metrics/internal/classes.h"
#include "cohort/keras/metrics/internal/mean_state.h"
#include "cohort/keras/metrics/metrics.h"

namespace cohort::keras {
namespace {

template <class T>
int64_t argmax(const T* row, int64_t classes) {
  int64_t best = 0;
  for (int64_t c = 1; c < classes; ++c) {
    // The first NaN is the greatest, as in NumPy and TensorFlow.
    if (row[c] > row[best] || (row[c] != row[c] && row[best] == row[best])) best = c;
  }
  return best;
}

/// k = 0: the class has to be the greatest; else fewer than k scores may be above it.
template <class T>
bool is_hit(const T* row, int64_t classes, int64_t label, int64_t k) {
  if (k == 0) return argmax(row, classes) == label;
  if (label < 0 || label >= classes || !std::isfinite(row[label])) return false;
  int64_t above = 0;
  for (int64_t c = 0; c < classes; ++c) {
    if (!std::isfinite(row[c])) return false;
    above += row[c] > row[label] ? 1 : 0;
  }
  return above < k;
}

/// is_hit() of every row, where the scores are: nobody reads them. Shapes: scores [..., classes],
/// labels [...] of any type.
Tensor hits_on_device(const Tensor& scores, const Tensor& labels, int64_t k) {
  if (k == 0) return scores.argmax(-1).eq(labels);
  const Tensor inside = labels.to(kInt64).clamp(0, scores.size(-1) - 1);
  const Tensor own = scores.gather(-1, inside.unsqueeze(-1));
  const Tensor few = scores.gt(own).sum(-1).lt(k);
  return few.logical_and_(inside.eq(labels)).logical_and_(scores.isfinite().all(-1));
}

/// Reads labels of any type; a number that is no integer matches no class.
class Labels {
 public:
  /// With `classes` a label is the place of the greatest of so many targets.
  Labels(const Tensor& y_true, int64_t classes)
      : tensor_(readable(y_true)), type_(tensor_.scalar_type()), classes_(classes) {}

  int64_t operator[](int64_t row) const {
    switch (type_) {
      case kInt64:
        return at<int64_t>(row);
      case kInt32:
        return at<int32_t>(row);
      case kUint8:
        return at<uint8_t>(row);
      case kFloat32:
        return at<float>(row);
      default:
        return at<double>(row);
    }
  }

 private:
  static Tensor readable(const Tensor& y) {
    const DType type = y.scalar_type();
    const bool direct =
        type == kInt64 || type == kInt32 || type == kUint8 || type == kFloat32 || type == kFloat64;
    return (direct ? y : y.to(kFloat64)).to(at::kCPU).contiguous();
  }
  template <class T>
  int64_t at(int64_t row) const {
    const T* data = tensor_.const_data_ptr<T>();
    if (classes_ > 0) return argmax(data + row * classes_, classes_);
    if constexpr (std::is_floating_point_v<T>) {
      if (!(data[row] >= 0 && data[row] < T(1LL << 53))) return -1;
    }
    const auto number = static_cast<int64_t>(data[row]);
    return static_cast<T>(number) == data[row] ? number : -1;
  }

  const Tensor tensor_;
  const DType type_;
  const int64_t classes_;
};

struct ClassAccuracyOptions {
  std::string name = {};
  int64_t k = 0;  // 0: the greatest
  MetricDType dtype = {};
  static void fields(auto&, auto&&) {}
};

struct TopKOptions : ClassAccuracyOptions {
  TopKOptions() { k = 5; }
  TopKOptions(std::string metric_name, int64_t count) {
    name = std::move(metric_name);
    k = count;
  }
  static void fields(auto& c, auto&& f) { f("k", c.k); }
};

class ClassAccuracy : public internal::MeanMetric {
 public:
  ClassAccuracy(std::string name, bool sparse, int64_t k)
      : MeanMetric(std::move(name)), sparse_(sparse), k_(k) {}
  Direction direction() const override { return Direction::kUp; }

  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    check_shapes(y_true, y_pred);
    if (y_pred.numel() == 0) return;
    if (is_on_device()) return count_on_device(y_true, y_pred, sample_weight);
    const Labels labels(y_true, sparse_ ? 0 : y_pred.size(-1));
    const DType type = y_pred.scalar_type();
    const Tensor scores = (type == kFloat32 || type == kFloat64 ? y_pred : y_pred.to(kFloat64))
                              .to(at::kCPU)
                              .contiguous();
    if (scores.scalar_type() == kFloat32) {
      count<float>(labels, scores, sample_weight);
    } else {
      count<double>(labels, scores, sample_weight);
    }
  }

 private:
  void check_shapes(const Tensor& y_true, const Tensor& y_pred) const {
    const at::IntArrayRef scores = y_pred.sizes();
    bool fits = y_pred.dim() > 0;
    if (fits && !sparse_) fits = y_true.sizes() == scores;
    if (fits && sparse_) {
      const auto outer = scores.slice(0, scores.size() - 1);
      fits = y_true.sizes() == outer || (y_true.dim() == y_pred.dim() && y_true.size(-1) == 1 &&
                                         y_true.sizes().slice(0, outer.size()) == outer);
    }
    COHORT_CHECK_ARG(fits, "[", name(), ".update_state] expected ",
                     sparse_ ? "a class number" : "a target for each score",
                     " for predictions of shape ", bracketed(scores), ", got y_true of shape ",
                     bracketed(y_true.sizes()));
  }

  void count_on_device(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) {
    const auto outer = y_pred.sizes().slice(0, static_cast<std::size_t>(y_pred.dim() - 1));
    const Tensor labels = sparse_ ? y_true.reshape(outer) : y_true.argmax(-1);
    add_values(hits_on_device(y_pred, labels.to(y_pred.device()), k_), sample_weight);
  }

  template <class T>
  void count(const Labels& labels, const Tensor& scores, const Tensor& sample_weight) {
    const int64_t classes = scores.size(-1);
    const int64_t rows = scores.numel() / classes;
    const T* data = scores.const_data_ptr<T>();
    if (sample_weight.defined()) {
      Tensor hits = empty({rows}, kFloat64);
      auto* out = hits.mutable_data_ptr<double>();
      for (int64_t r = 0; r < rows; ++r)
        out[r] = is_hit(data + r * classes, classes, labels[r], k_);
      const auto outer = scores.sizes().slice(0, static_cast<std::size_t>(scores.dim() - 1));
      return add_values(hits.view(outer), sample_weight);
    }
    int64_t hits = 0;
    for (int64_t r = 0; r < rows; ++r) {
      hits += is_hit(data + r * classes, classes, labels[r], k_) ? 1 : 0;
    }
    const int64_t examples = scores.dim() == 1 ? 1 : scores.size(0);
    add(static_cast<double>(hits) * static_cast<double>(examples) / static_cast<double>(rows),
        static_cast<double>(examples));
  }

  const bool sparse_;
  const int64_t k_;
};

template <bool kSparse, class C>
class ClassAccuracyOf : public ClassAccuracy {
 public:
  using Options = C;
  ClassAccuracyOf(C options, const char* standard_name)
      : ClassAccuracy(options.name.empty() ? standard_name : options.name, kSparse, options.k),
        options_(std::move(options)) {
    constexpr bool kTopK = std::is_same_v<C, TopKOptions>;
    COHORT_CHECK_ARG(!kTopK || options_.k > 0, "[", name(), "] expected k above 0, got ",
                     options_.k);
  }
  Config get_config() const override {
    C now = options_;
    now.name = name();
    return internal::full_config<MetricBase>(now);
  }

 private:
  const C options_;
};

struct CategoricalAccuracyMetric final : ClassAccuracyOf<false, ClassAccuracyOptions> {
  explicit CategoricalAccuracyMetric(Options o)
      : ClassAccuracyOf(std::move(o), "categorical_accuracy") {}
};
struct SparseCategoricalAccuracyMetric final : ClassAccuracyOf<true, ClassAccuracyOptions> {
  explicit SparseCategoricalAccuracyMetric(Options o)
      : ClassAccuracyOf(std::move(o), "sparse_categorical_accuracy") {}
};
struct TopKCategoricalAccuracyMetric final : ClassAccuracyOf<false, TopKOptions> {
  explicit TopKCategoricalAccuracyMetric(Options o)
      : ClassAccuracyOf(std::move(o), "top_k_categorical_accuracy") {}
};
struct SparseTopKCategoricalAccuracyMetric final : ClassAccuracyOf<true, TopKOptions> {
  explicit SparseTopKCategoricalAccuracyMetric(Options o)
      : ClassAccuracyOf(std::move(o), "sparse_top_k_categorical_accuracy") {}
};

}  // namespace

void internal::add_class_accuracies(ClassTable& table) {
  table.add_builtin<CategoricalAccuracyMetric>();
  table.add_builtin<SparseCategoricalAccuracyMetric>();
  table.add_builtin<SparseTopKCategoricalAccuracyMetric>();
  table.add_builtin<TopKCategoricalAccuracyMetric>();
}

CategoricalAccuracy::CategoricalAccuracy(std::string name)
    : Metric(std::make_shared<CategoricalAccuracyMetric>(
          ClassAccuracyOptions{.name = std::move(name)})) {}
SparseCategoricalAccuracy::SparseCategoricalAccuracy(std::string name)
    : Metric(std::make_shared<SparseCategoricalAccuracyMetric>(
          ClassAccuracyOptions{.name = std::move(name)})) {}
TopKCategoricalAccuracy::TopKCategoricalAccuracy(int k, std::string name)
    : Metric(std::make_shared<TopKCategoricalAccuracyMetric>(TopKOptions(std::move(name), k))) {}
SparseTopKCategoricalAccuracy::SparseTopKCategoricalAccuracy(int k, std::string name)
    : Metric(
          std::make_shared<SparseTopKCategoricalAccuracyMetric>(TopKOptions(std::move(name), k))) {}

}  // namespace cohort::keras
