// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/losses/functions.h"

#include <ATen/ops/ctc_loss.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "cohort/base/check.h"
#include "cohort/keras/internal/align_ranks.h"
#include "cohort/keras/losses/internal/labels.h"
#include "cohort/keras/losses/losses.h"

namespace cohort::keras::losses {
namespace {

constexpr double kTiny = 1e-7;  // Keras's backend.epsilon()

Tensor floating(const Tensor& x) {
  return at::isFloatingType(x.scalar_type()) ? x : x.to(kFloat32);
}

/// Targets and predictions of one rank and one floating type.
std::pair<Tensor, Tensor> ready(const char* name, const Tensor& y_true, const Tensor& y_pred) {
  const Tensor scores = floating(y_pred);
  return cohort::keras::internal::comparable(name, "", y_true.to(scores.scalar_type()), scores);
}

Tensor mean_of_last(const Tensor& x) { return x.dim() == 0 ? x : x.mean(-1); }

void check_rows(const char* name, const Tensor& y_pred) {
  COHORT_CHECK_ARG(y_pred.dim() > 0, "[", name,
                   "] expected predictions with a last axis, got a scalar");
}

Tensor smoothed_targets(const Tensor& y, double smoothing, double classes) {
  return smoothing == 0 ? y : y * (1 - smoothing) + smoothing / classes;
}

// 0 and 1 are -1 and 1, if there is nothing else.
Tensor hinge_labels(const Tensor& y) {
  const Tensor binary = (y.eq(0).logical_or(y.eq(1))).all();
  return at::where(binary, y * 2 - 1, y);
}

Tensor hinge_distance(const char* name, const Tensor& y_true, const Tensor& y_pred) {
  const auto [y, p] = ready(name, y_true, y_pred);
  return (1 - hinge_labels(y) * p).clamp_min(0);
}

void check_axis(const char* name, const Tensor& y_pred, int64_t axis) {
  COHORT_CHECK_ARG(axis >= -y_pred.dim() && axis < y_pred.dim(), "[", name,
                   "] expected an axis of predictions of shape ", bracketed(y_pred.sizes()),
                   ", got ", axis);
}

Tensor unit_length(const Tensor& x, int64_t axis) {
  return x * x.square().sum(axis, /*keepdim=*/true).clamp_min(kTiny * kTiny).rsqrt();
}

Tensor sum_of(const Tensor& x, const Axes& axes) { return axes.empty() ? x.sum() : x.sum(axes); }

template <class L>
Tensor values_of(const L& loss, const Tensor& y_true, const Tensor& y_pred) {
  return loss.base().call(y_true, floating(y_pred));
}

}  // namespace

Tensor mean_squared_error(const Tensor& y_true, const Tensor& y_pred) {
  const auto [y, p] = ready("mean_squared_error", y_true, y_pred);
  return mean_of_last((p - y).square());
}

Tensor mean_absolute_error(const Tensor& y_true, const Tensor& y_pred) {
  const auto [y, p] = ready("mean_absolute_error", y_true, y_pred);
  return mean_of_last((p - y).abs());
}

Tensor mean_absolute_percentage_error(const Tensor& y_true, const Tensor& y_pred) {
  const auto [y, p] = ready("mean_absolute_percentage_error", y_true, y_pred);
  return mean_of_last(((y - p) / y.abs().clamp_min(kTiny)).abs()) * 100;
}

Tensor mean_squared_logarithmic_error(const Tensor& y_true, const Tensor& y_pred) {
  const auto [y, p] = ready("mean_squared_logarithmic_error", y_true, y_pred);
  return mean_of_last(((p.clamp_min(kTiny) + 1).log() - (y.clamp_min(kTiny) + 1).log()).square());
}

Tensor huber(const Tensor& y_true, const Tensor& y_pred, double delta) {
  const auto [y, p] = ready("huber", y_true, y_pred);
  const Tensor error = p - y;
  const Tensor size = error.abs();
  return mean_of_last(
      at::where(size.le(delta), error.square().mul(0.5), size.mul(delta).sub(0.5 * delta * delta)));
}

Tensor log_cosh(const Tensor& y_true, const Tensor& y_pred) {
  const auto [y, p] = ready("log_cosh", y_true, y_pred);
  const Tensor error = p - y;
  return mean_of_last(error + at::softplus(error * -2) - std::log(2.0));
}

Tensor poisson(const Tensor& y_true, const Tensor& y_pred) {
  const auto [y, p] = ready("poisson", y_true, y_pred);
  return mean_of_last(p - y * (p + kTiny).log());
}

Tensor hinge(const Tensor& y_true, const Tensor& y_pred) {
  return mean_of_last(hinge_distance("hinge", y_true, y_pred));
}

Tensor squared_hinge(const Tensor& y_true, const Tensor& y_pred) {
  return mean_of_last(hinge_distance("squared_hinge", y_true, y_pred).square());
}

Tensor kl_divergence(const Tensor& y_true, const Tensor& y_pred) {
  const auto [labels, scores] = ready("kl_divergence", y_true, y_pred);
  check_rows("kl_divergence", scores);
  const Tensor y = labels.clamp(kTiny, 1);
  return (y * (y / scores.clamp(kTiny, 1)).log()).sum(-1);
}

Tensor categorical_hinge(const Tensor& y_true, const Tensor& y_pred) {
  const auto [y, p] = ready("categorical_hinge", y_true, y_pred);
  check_rows("categorical_hinge", p);
  return (((1 - y) * p).amax(-1) - (y * p).sum(-1) + 1).clamp_min(0);
}

Tensor cosine_similarity(const Tensor& y_true, const Tensor& y_pred, int64_t axis) {
  const auto [y, p] = ready("cosine_similarity", y_true, y_pred);
  check_rows("cosine_similarity", p);
  check_axis("cosine_similarity", p, axis);
  return -(unit_length(y, axis) * unit_length(p, axis)).sum(axis);
}

Tensor binary_crossentropy(const Tensor& y_true, const Tensor& y_pred, bool from_logits,
                           double label_smoothing) {
  return values_of(
      BinaryCrossentropy({.from_logits = from_logits, .label_smoothing = label_smoothing}), y_true,
      y_pred);
}

Tensor categorical_crossentropy(const Tensor& y_true, const Tensor& y_pred, bool from_logits,
                                double label_smoothing) {
  return values_of(
      CategoricalCrossentropy({.from_logits = from_logits, .label_smoothing = label_smoothing}),
      y_true, y_pred);
}

Tensor sparse_categorical_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                       bool from_logits) {
  return values_of(SparseCategoricalCrossentropy({.from_logits = from_logits}), y_true, y_pred);
}

Tensor binary_focal_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                 const BinaryFocalNumbers& numbers) {
  const auto [labels, scores] = ready("binary_focal_crossentropy", y_true, y_pred);
  check_axis("binary_focal_crossentropy", scores, numbers.axis);
  const Tensor y = smoothed_targets(labels, numbers.label_smoothing, 2);
  const Tensor p = numbers.from_logits ? scores.sigmoid() : scores;
  const Tensor inside = p.clamp(kTiny, 1 - kTiny);
  const Tensor entropy = -(y * inside.log() + (1 - y) * (1 - inside).log());
  const Tensor right = y * p + (1 - y) * (1 - p);
  Tensor values = (1 - right).pow(numbers.gamma) * entropy;
  if (numbers.apply_class_balancing) {
    values = (y * numbers.alpha + (1 - y) * (1 - numbers.alpha)) * values;
  }
  return values.mean(numbers.axis);
}

Tensor categorical_focal_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                      const CategoricalFocalNumbers& numbers) {
  const auto [labels, scores] = ready("categorical_focal_crossentropy", y_true, y_pred);
  const int64_t axis = numbers.axis;
  check_axis("categorical_focal_crossentropy", scores, axis);
  const Tensor y =
      smoothed_targets(labels, numbers.label_smoothing, static_cast<double>(labels.size(-1)));
  const Tensor given = numbers.from_logits ? scores.softmax(axis) : scores;
  const Tensor p = (given / given.sum(axis, /*keepdim=*/true)).clamp(kTiny, 1 - kTiny);
  return ((1 - p).pow(numbers.gamma) * numbers.alpha * (-y * p.log())).sum(axis);
}

Tensor categorical_generalized_cross_entropy(const Tensor& y_true, const Tensor& y_pred, double q) {
  constexpr const char* kName = "categorical_generalized_cross_entropy";
  COHORT_CHECK_ARG(q > 0 && q < 1, "[", kName, "] expected q in (0, 1), got ", q);
  const Tensor scores = floating(y_pred);
  check_rows(kName, scores);
  const Tensor labels = cohort::keras::internal::class_numbers(kName, y_true, scores);
  const Tensor p = cohort::keras::internal::picked(scores, labels);
  return (1 - p.pow(q)) / q;
}

Tensor dice(const Tensor& y_true, const Tensor& y_pred, const Axes& axes) {
  const auto [y, p] = ready("dice", y_true, y_pred);
  return 1 - sum_of(y * p, axes) * 2 / (sum_of(y, axes) + sum_of(p, axes) + kTiny);
}

Tensor tversky(const Tensor& y_true, const Tensor& y_pred, double alpha, double beta,
               const Axes& axes) {
  const auto [y, p] = ready("tversky", y_true, y_pred);
  const Tensor both = sum_of(y * p, axes);
  const Tensor missed = sum_of((1 - p) * y, axes);
  const Tensor extra = sum_of(p * (1 - y), axes);
  return 1 - both / (both + missed * alpha + extra * beta + kTiny);
}

Tensor circle(const Tensor& y_true, const Tensor& y_pred, bool remove_diagonal, double gamma,
              double margin) {
  const Tensor p = floating(y_pred);
  COHORT_CHECK_ARG(p.dim() == 2 && y_true.numel() == p.size(0),
                   "[circle] expected embeddings of shape [b, d] and a label for each, got y_pred ",
                   bracketed(p.sizes()), " and y_true ", bracketed(y_true.sizes()));
  const Tensor labels = y_true.to(kInt64).reshape({-1, 1});
  const Tensor distances = (1 - p.mm(p.t())).clamp_min(0);
  const Tensor same = labels.eq(labels.t());
  const Tensor negative = same.logical_not();
  Tensor positive = same;
  if (remove_diagonal) {
    positive = same.logical_and(at::eye(p.size(0), same.options()).logical_not());
  }
  // Not -inf: of a row without pairs its gradient would be no number.
  constexpr double kNone = -1e30;
  const Tensor near = (margin + distances).clamp_min(0) * (margin - distances) * -gamma;
  const Tensor far = (1 + margin - distances).clamp_min(0) * (1 - margin - distances) * gamma;
  return at::softplus(at::logsumexp(at::where(positive, near, kNone), 1) +
                      at::logsumexp(at::where(negative, far, kNone), 1));
}

Tensor ctc(const Tensor& y_true, const Tensor& y_pred) {
  const Tensor scores = floating(y_pred);
  COHORT_CHECK_ARG(y_true.dim() == 2, "[ctc] expected y_true of shape [b, labels], got ",
                   bracketed(y_true.sizes()));
  COHORT_CHECK_ARG(scores.dim() == 3 && scores.size(0) == y_true.size(0),
                   "[ctc] expected y_pred of shape [", y_true.size(0),
                   ", steps, classes] for y_true of shape ", bracketed(y_true.sizes()), ", got ",
                   bracketed(scores.sizes()));
  const Tensor labels = y_true.to(kInt64);
  const int64_t classes = scores.size(2);
  const bool reads = labels.is_cpu() && labels.numel() > 0;
  COHORT_CHECK_ARG(
      !reads || (labels.min().item<int64_t>() >= 0 && labels.max().item<int64_t>() < classes),
      "[ctc] expected labels in [0, ", classes, "), got one in [", labels.min().item<int64_t>(),
      ", ", labels.max().item<int64_t>(), "]");
  if (scores.size(0) == 0) return scores.sum({1, 2});  // which LibTorch refuses
  const Tensor lengths = full({scores.size(0)}, static_cast<double>(scores.size(1)), kInt64);
  return at::ctc_loss(scores.log_softmax(-1).transpose(0, 1), labels, lengths, labels.ne(0).sum(-1),
                      /*blank=*/0, /*reduction=*/0, /*zero_infinity=*/false);
}

}  // namespace cohort::keras::losses
