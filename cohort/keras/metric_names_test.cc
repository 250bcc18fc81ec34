// SPDX-License-Identifier: Apache-2.0
//
// What metrics of one name are called in logs: names and numbers are those of Keras 3.15.
#include <gtest/gtest.h>

#include "cohort/keras/layers/layers.h"
#include "cohort/keras/metrics/metrics.h"
#include "cohort/keras/model.h"
#include "cohort/keras/sequential.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

constexpr Verbose kSilent = Verbose::kSilent;

Tensor column(std::vector<float> values) {
  const auto rows = static_cast<int64_t>(values.size());
  return from_vector(values, {rows, 1});
}

struct Rows {
  Tensor x = zeros({4, 2});  // predictions are zeros
  Tensor y = column({1, 2, 3, 4});
  Tensor weight = tensor({1, 0, 0, 3});
};

// Keras: {'loss': 3.25, 'mae': 2.5, 'mae_1': 2.5, 'mae_2': 2.5, 'mse': 7.5, 'weighted_mae': 3.25,
// 'weighted_mae_1': 3.25}.
TEST(MetricNames, AreUniqueAsInKeras) {
  const Rows rows;
  for (const Strategy& strategy :
       {get_strategy(), Strategy(MirroredStrategy({"CPU:0", "CPU:1"}))}) {
    const auto scope = strategy.scope();
    Sequential model({InputLayer({2}), Dense(1)});
    model.compile({.loss = "mae",
                   .metrics = {"mae", "mse", "mae", metrics::MeanAbsoluteError("mae")},
                   .weighted_metrics = {"mae", "mae"}});
    const Logs logs = model.evaluate(
        rows.x, rows.y, {.batch_size = 3, .verbose = kSilent, .sample_weight = rows.weight});
    EXPECT_EQ(logs.names(), (std::vector<std::string>{"loss", "mae", "mae_1", "mae_2", "mse",
                                                      "weighted_mae", "weighted_mae_1"}));
    EXPECT_EQ(logs.number("mae"), 2.5);
    EXPECT_EQ(logs.number("mae_2"), 2.5);
    EXPECT_EQ(logs.number("mse"), 7.5);
    EXPECT_EQ(logs.number("weighted_mae_1"), 3.25);
  }
}

// Keras loses one of them.
TEST(MetricNames, LeaveAloneANameThatAMetricHas) {
  const Rows rows;
  Sequential model({InputLayer({2}), Dense(1)});
  model.compile({.loss = "mae", .metrics = {"mae", "mae", metrics::MeanSquaredError("mae_1")}});
  const Logs logs = model.evaluate(rows.x, rows.y, {.verbose = kSilent});
  EXPECT_EQ(logs.names(), (std::vector<std::string>{"loss", "mae", "mae_1", "mae_1_1"}));
  EXPECT_EQ(logs.number("mae_1_1"), 7.5);
}

// Keras: {'loss': 10.0, 'p_loss': 7.5, 'p_mae': 2.5, 'p_weighted_mae': 2.5, 'q_loss': 2.5,
// 'q_mae': 2.5}.
TEST(MetricNames, AreUniqueForEachOutput) {
  const Rows rows;
  const KerasTensor x = Input({2});
  Model model(x, {Dense(1, {.name = "p"})(x), Dense(1, {.name = "q"})(x)});
  model.compile({.loss = {{"p", "mse"}, {"q", "mae"}},
                 .metrics = {{"p", {"mae"}}, {"q", {"mae"}}},
                 .weighted_metrics = {{"p", {"mae"}}}});
  const Logs logs = model.evaluate(rows.x, Element{rows.y, rows.y}, {.verbose = kSilent});
  EXPECT_EQ(logs.names(), (std::vector<std::string>{"loss", "p_loss", "p_mae", "p_weighted_mae",
                                                    "q_loss", "q_mae"}));
  EXPECT_EQ(logs.number("p_weighted_mae"), 2.5);
}

TEST(MetricNames, AreNotThoseOfLosses) {
  Sequential model({Dense(1)});
  testing::expect_error<InvalidArgument>({"\"loss\""}, [&] {
    model.compile({.loss = "mse", .metrics = {metrics::MeanAbsoluteError("loss")}});
  });
  testing::expect_error<InvalidArgument>({"\"loss\""}, [&] {
    model.compile({.loss = "mse", .weighted_metrics = {metrics::MeanAbsoluteError("loss")}});
  });
}

}  // namespace
}  // namespace cohort::keras
