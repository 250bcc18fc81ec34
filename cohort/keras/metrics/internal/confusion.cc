// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/metrics/internal/confusion.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cohort/base/check.h"
#include "cohort/keras/internal/align_ranks.h"

namespace cohort::keras::internal {
namespace {

/// What a batch is counted by: one type, contiguous, of equal shapes.
struct Batch {
  Tensor labels;       // float32
  Tensor predictions;  // float32
  Tensor weights;      // float64; undefined: 1
};

// Weights of [b] count for all of a row, whatever its shape.
Tensor weights_of(const std::string& metric, const Tensor& weight, const Tensor& like) {
  Tensor w = weight.to(like.device(), kFloat64);
  if (w.dim() == like.dim() + 1 && w.size(-1) == 1) w = w.squeeze(-1);
  while (w.dim() < like.dim()) w = w.unsqueeze(-1);
  COHORT_CHECK_ARG(at::is_expandable_to(w.sizes(), like.sizes()), "[", metric,
                   ".update_state] expected sample weights of shape ", bracketed(like.sizes()),
                   " or broadcasting to it, got ", bracketed(weight.sizes()));
  return w.expand(like.sizes());
}

// Predictions that are not among the k greatest of their row are below every threshold.
Tensor keep_top_k(const std::string& metric, const Tensor& predictions, int64_t k) {
  COHORT_CHECK_ARG(predictions.dim() > 0 && k <= predictions.size(-1), "[", metric,
                   ".update_state] expected at least top_k = ", k,
                   " predictions in a row, got shape ", bracketed(predictions.sizes()));
  const Tensor order = std::get<1>(predictions.sort(/*stable=*/true, -1, /*descending=*/true));
  const Tensor kept = at::zeros(predictions.sizes(), predictions.options().dtype(kBool))
                          .scatter(-1, order.slice(-1, 0, k), 1);
  return predictions.masked_fill(kept.logical_not(), -1e10);
}

// Of tensors of one place; `own_weights`: the rule's label_weights there.
Batch make_batch(const std::string& metric, const ConfusionRule& rule, const Tensor& y_true,
                 const Tensor& y_pred, const Tensor& sample_weight, const Tensor& own_weights) {
  auto [labels, predictions] =
      comparable(metric, ".update_state", y_true.to(kFloat32), y_pred.to(kFloat32));
  if (labels.sizes() != predictions.sizes()) labels = labels.expand_as(predictions);
  if (rule.top_k) predictions = keep_top_k(metric, predictions, *rule.top_k);
  if (rule.class_id) {
    COHORT_CHECK_ARG(predictions.dim() > 1 && *rule.class_id < predictions.size(-1), "[", metric,
                     ".update_state] expected predictions with a column for class_id = ",
                     *rule.class_id, ", got shape ", bracketed(predictions.sizes()));
    labels = labels.narrow(-1, *rule.class_id, 1);
    predictions = predictions.narrow(-1, *rule.class_id, 1);
  }
  Tensor weights;
  if (sample_weight.defined()) weights = weights_of(metric, sample_weight, predictions);
  if (!rule.label_weights.empty()) {
    const auto columns = static_cast<int64_t>(rule.label_weights.size());
    COHORT_CHECK_ARG(predictions.dim() > 0 && predictions.size(-1) == columns, "[", metric,
                     ".update_state] expected predictions with ", columns,
                     " columns, as many as label_weights, got shape ",
                     bracketed(predictions.sizes()));
    const Tensor own = own_weights.expand_as(predictions);
    weights = weights.defined() ? weights * own : own;
  }
  if (weights.defined()) weights = weights.contiguous();
  return {labels.contiguous(), predictions.contiguous(), weights};
}

Tensor label_weights_of(const ConfusionRule& rule) {
  if (rule.label_weights.empty()) return {};
  return from_vector(rule.label_weights, {static_cast<int64_t>(rule.label_weights.size())});
}

/// Says how many of the sorted thresholds a prediction is above.
class Levels {
 public:
  explicit Levels(const ConfusionRule& rule)
      : evenly_(rule.evenly), first_below_zero_(rule.first_below_zero) {
    order_.resize(rule.thresholds.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return rule.thresholds[a] < rule.thresholds[b];
    });
    for (const std::size_t i : order_) {
      sorted_.push_back(static_cast<float>(rule.thresholds[i]));
    }
  }
  std::size_t size() const { return sorted_.size(); }
  const std::vector<float>& sorted() const { return sorted_; }
  /// Where the level's threshold stands in the rule.
  std::size_t place(std::size_t level) const { return order_[level]; }

  std::size_t of(float x) const {
    if (std::isnan(x)) return 0;
    if (!evenly_) {
      return static_cast<std::size_t>(std::lower_bound(sorted_.begin(), sorted_.end(), x) -
                                      sorted_.begin());
    }
    const auto last = static_cast<float>(sorted_.size() - 1);
    const float level = std::ceil(std::clamp(x, 0.0F, 1.0F) * last);
    return static_cast<std::size_t>(first_below_zero_ ? std::max(level, 1.0F) : level);
  }

 private:
  const bool evenly_;
  const bool first_below_zero_;
  std::vector<std::size_t> order_;
  std::vector<float> sorted_;
};

}  // namespace

bool divide_evenly(const std::vector<double>& thresholds) {
  if (thresholds.size() < 3) return false;
  for (std::size_t i = 0; i < thresholds.size(); ++i) {
    const double even = static_cast<double>(i) / static_cast<double>(thresholds.size() - 1);
    if (std::fabs(thresholds[i] - even) > 1e-7 + 1e-5 * even) return false;
  }
  return true;
}

ConfusionCounts count_confusion(const std::string& metric, const ConfusionRule& rule,
                                const Tensor& y_true, const Tensor& y_pred,
                                const Tensor& sample_weight) {
  const Batch batch = make_batch(metric, rule, y_true.to(at::kCPU), y_pred.to(at::kCPU),
                                 sample_weight, label_weights_of(rule));
  const Levels levels(rule);
  const std::size_t labels =
      rule.per_label ? static_cast<std::size_t>(batch.predictions.size(-1)) : 1;
  // [label][positive][level]: the weight of what is above so many thresholds.
  std::vector<double> sums(labels * 2 * (levels.size() + 1));
  const auto* y = batch.labels.const_data_ptr<float>();
  const auto* p = batch.predictions.const_data_ptr<float>();
  const double* w = batch.weights.defined() ? batch.weights.const_data_ptr<double>() : nullptr;
  const auto n = static_cast<std::size_t>(batch.predictions.numel());
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t kind = (i % labels) * 2 + (y[i] != 0 ? 1 : 0);
    sums[kind * (levels.size() + 1) + levels.of(p[i])] += w == nullptr ? 1 : w[i];
  }
  const std::size_t size = levels.size() * labels;
  ConfusionCounts counts{std::vector<double>(size), std::vector<double>(size),
                         std::vector<double>(size), std::vector<double>(size)};
  for (std::size_t label = 0; label < labels; ++label) {
    for (const bool positive : {false, true}) {
      const double* own = sums.data() + (label * 2 + (positive ? 1 : 0)) * (levels.size() + 1);
      const double total = std::accumulate(own, own + levels.size() + 1, 0.0);
      auto& above = positive ? counts.true_positives : counts.false_positives;
      auto& below = positive ? counts.false_negatives : counts.true_negatives;
      double sum = 0;
      for (std::size_t level = levels.size(); level-- > 0;) {
        sum += own[level + 1];
        const std::size_t at = levels.place(level) * labels + label;
        above[at] = sum;
        below[at] = total - sum;
      }
    }
  }
  return counts;
}

const Tensor& DeviceConfusion::of(std::vector<double> ConfusionCounts::*member) const {
  if (member == &ConfusionCounts::true_positives) return true_positives;
  if (member == &ConfusionCounts::false_positives) return false_positives;
  if (member == &ConfusionCounts::true_negatives) return true_negatives;
  return false_negatives;
}

// As Levels::of.
Tensor DeviceCounter::level_of(const ConfusionRule& rule, const Tensor& predictions) {
  const auto count = static_cast<int64_t>(rule.thresholds.size());
  const Tensor none = predictions.isnan();
  Tensor level;
  if (rule.evenly) {
    level = predictions.clamp(0, 1).mul_(count - 1).ceil_();
    if (rule.first_below_zero) level.clamp_min_(1);
    level = level.masked_fill_(none, 0).to(kInt64);
  } else if (count == 1) {
    level = predictions.gt(static_cast<float>(rule.thresholds[0])).to(kInt64);
  } else {
    const Tensor sorted =
        thresholds_.on(predictions, [&] { return from_vector(Levels(rule).sorted(), {count}); });
    level = at::searchsorted(sorted, predictions).masked_fill_(none, 0);
  }
  return level;
}

DeviceConfusion DeviceCounter::count(const std::string& metric, const ConfusionRule& rule,
                                     const Tensor& y_true, const Tensor& y_pred,
                                     const Tensor& sample_weight) {
  Tensor own_weights;
  if (!rule.label_weights.empty()) {
    own_weights = label_weights_.on(y_pred, [&] { return label_weights_of(rule); });
  }
  const Batch batch =
      make_batch(metric, rule, y_true.to(y_pred.device()), y_pred, sample_weight, own_weights);
  const auto count = static_cast<int64_t>(rule.thresholds.size());
  const int64_t labels = rule.per_label ? batch.predictions.size(-1) : 1;
  // [label][positive][level], as in count_confusion.
  Tensor bin = batch.labels.ne(0).to(kInt64);
  if (rule.per_label) bin.add_(at::arange(labels, bin.options()), 2);
  bin.mul_(count + 1).add_(level_of(rule, batch.predictions));
  Tensor sums = at::zeros({labels * 2 * (count + 1)}, bin.options().dtype(kFloat64));
  if (batch.weights.defined()) {
    sums.scatter_add_(0, bin.reshape({-1}), batch.weights.reshape({-1}));
  } else {
    sums.scatter_(0, bin.reshape({-1}), 1, "add");
  }
  sums = sums.view({labels, 2, count + 1});
  const Tensor total = sums.sum(-1, /*keepdim=*/true);
  Tensor above = sums.slice(-1, 1).flip(-1).cumsum(-1).flip(-1).permute({1, 2, 0});
  Tensor below = total.permute({1, 2, 0}) - above;
  // From the order of the sorted thresholds into the rule's.
  const Levels levels(rule);
  std::vector<int64_t> places(levels.size());
  for (std::size_t level = 0; level < levels.size(); ++level) {
    places[levels.place(level)] = static_cast<int64_t>(level);
  }
  if (!std::ranges::is_sorted(places)) {
    const Tensor places_there = places_.on(sums, [&] { return from_vector(places, {count}); });
    above = above.index_select(1, places_there);
    below = below.index_select(1, places_there);
  }
  return {above[1], above[0], below[0], below[1]};
}

}  // namespace cohort::keras::internal
