// SPDX-License-Identifier: Apache-2.0
//
// Rows of labels, predictions and weights meet their own, in whatever loss or metric has a name.
#include <gtest/gtest.h>

#include <functional>
#include <sstream>

#include "cohort/base/error.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/metrics/metrics.h"

namespace cohort::keras {
namespace {

// All that have names: [b] and [b, 1] never meet as [b, b], where rows are compared with others.
const std::vector<std::string> kLosses = {"sparse_categorical_crossentropy",
                                          "categorical_crossentropy",
                                          "binary_crossentropy",
                                          "mse",
                                          "mae",
                                          "huber",
                                          "mape",
                                          "msle",
                                          "log_cosh",
                                          "poisson",
                                          "kl_divergence",
                                          "cosine_similarity",
                                          "hinge",
                                          "squared_hinge",
                                          "categorical_hinge",
                                          "binary_focal_crossentropy",
                                          "categorical_focal_crossentropy",
                                          "categorical_generalized_cross_entropy",
                                          "dice",
                                          "tversky"};
const std::vector<std::string> kMetrics = {"accuracy",
                                           "binary_accuracy",
                                           "categorical_accuracy",
                                           "sparse_categorical_accuracy",
                                           "top_k_categorical_accuracy",
                                           "sparse_top_k_categorical_accuracy",
                                           "mse",
                                           "mae",
                                           "auc",
                                           "binary_io_u",
                                           "concordance_correlation",
                                           "cosine_similarity",
                                           "f1_score",
                                           "fbeta_score",
                                           "pearson_correlation",
                                           "precision",
                                           "r2_score",
                                           "recall",
                                           "binary_crossentropy",
                                           "categorical_crossentropy",
                                           "categorical_hinge",
                                           "hinge",
                                           "kl_divergence",
                                           "log_cosh",
                                           "mape",
                                           "msle",
                                           "poisson",
                                           "root_mean_squared_error",
                                           "sparse_categorical_crossentropy",
                                           "squared_hinge",
                                           "false_negatives",
                                           "false_positives",
                                           "true_negatives",
                                           "true_positives"};

std::string shown_or_refused(const std::function<Tensor()>& value) {
  try {
    std::ostringstream out;
    for (const double x : to_vector<double>(value().to(kFloat64).reshape({-1}))) out << x << ' ';
    return out.str();
  } catch (const Error&) {
    return "-";
  }
}

void expect_own_rows(const std::string& name,
                     const std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>& f) {
  const Tensor y = tensor({1, 0, 1, 0}), p = tensor({0.9, 0.2, 0.4, 0.7});
  const Tensor y1 = y.unsqueeze(1), p1 = p.unsqueeze(1);
  for (const Tensor& w : {Tensor(), tensor({1, 2, 0, 3})}) {
    const Tensor w1 = w.defined() ? w.unsqueeze(1) : w;
    const std::string flat = shown_or_refused([&] { return f(y, p, w); });
    const std::string columns = shown_or_refused([&] { return f(y1, p1, w); });
    // These take indices of classes beside a column for each class, and nothing else.
    const bool needs_classes = name.ends_with("sparse_categorical_crossentropy") ||
                               name == "categorical_generalized_cross_entropy";
    EXPECT_EQ(flat == "-" && columns == "-", needs_classes) << name;
    for (const Tensor& weight : {w, w1}) {
      for (const auto& [truth, guess] : {std::pair(y, p1), std::pair(y1, p)}) {
        const std::string got =
            shown_or_refused([&, t = truth, g = guess] { return f(t, g, weight); });
        EXPECT_TRUE(got == "-" || got == flat || got == columns)
            << name << ": " << got << ", flat " << flat << ", columns " << columns;
      }
    }
  }
}

TEST(Shapes, RowsMeetTheirOwnInEveryLossAndMetric) {
  for (const std::string& name : kLosses) {
    const Loss loss(name);
    expect_own_rows(
        name, [&](const Tensor& y, const Tensor& p, const Tensor& w) { return loss(y, p, w); });
  }
  for (const std::string& name : kMetrics) {
    expect_own_rows("metric " + name, [&](const Tensor& y, const Tensor& p, const Tensor& w) {
      Metric metric = Metric(name).resolve(shape_of(y), shape_of(p));
      metric.update_state(y, p, w);
      return metric.result();
    });
  }
}

// A program's own function is held to it, too: labels [b] would make [b, b] of predictions [b, 1].
TEST(Shapes, RowsMeetTheirOwnInAFunctionOfOnesOwn) {
  const auto distance = [](const Tensor& y, const Tensor& p) { return (y - p).abs(); };
  const Tensor labels = tensor({0, 10, 20});
  const Tensor scores = tensor({1, 12, 23}).view({3, 1});
  Metric metric = MeanMetricWrapper(distance);
  metric.update_state(labels, scores);
  EXPECT_EQ(metric.result().item<double>(), 2);
  // A weight for each row counts it so often: (1 * 1 + 2 * 0 + 3 * 3) / 4.
  Metric weighed = MeanMetricWrapper(distance);
  weighed.update_state(labels, scores, tensor({1, 0, 3}));
  EXPECT_EQ(weighed.result().item<double>(), 2.5);
  const Loss loss(distance);
  EXPECT_EQ(loss(labels, scores).item<double>(), 2);
}

}  // namespace
}  // namespace cohort::keras
