// SPDX-License-Identifier: Apache-2.0
//
// Losses without a reduction in compile(): gradients are those of the sum of the values, and logs
// are their mean, as in Keras.
#include <gtest/gtest.h>

#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"

namespace cohort::keras {
namespace {

using cohort::testing::strategy_of;

Tensor numbers(int64_t rows, int64_t width, double phase) {
  return (arange(rows * width, kFloat64) * 0.7 + phase).sin().reshape({rows, width});
}

class Unreduced : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, Unreduced, ::testing::Values(0, 1, 2, 3));

// 7 rows in batches of 3, of which replicas get 2 and 1, 1 and 1 and 1, or none.
TEST_P(Unreduced, LogIsTheMeanOfAllValues) {
  const Strategy strategy = strategy_of(GetParam());
  const auto scope = strategy.scope();
  const KerasTensor x = Input({4, 3}, {.dtype = kFloat64});
  Model model(x, Dense(2, {.kernel_regularizer = L2(0.01), .dtype = kFloat64})(x));
  model.compile({.optimizer = SGD({.learning_rate = 0.0}),
                 .loss = MeanSquaredError({.reduction = Reduction::kNone})});
  const Tensor in = numbers(7, 12, 0).reshape({7, 4, 3}), out = numbers(7, 8, 1).reshape({7, 4, 2});
  const Tensor weight = (arange(7, kFloat64) * 0.5).unsqueeze(1);
  const Tensor errors = (model(in) - out).square().mean(-1).detach();
  const double penalty = model.get_weights()[0].square().sum().item<double>() * 0.01;
  const auto data = Dataset::from_tensor_slices(Element::tuple({in, out})).batch(3);
  const History history = model.fit(data, {.verbose = Verbose::kSilent});
  EXPECT_NEAR(history["loss"][0], errors.mean().item<double>() + penalty, 1e-6);
  EXPECT_NEAR(model.evaluate(data, {.verbose = Verbose::kSilent}).number("loss"),
              errors.mean().item<double>() + penalty, 1e-6);
  const auto weighted = Dataset::from_tensor_slices(Element::tuple({in, out, weight})).batch(3);
  EXPECT_NEAR(model.evaluate(weighted, {.verbose = Verbose::kSilent}).number("loss"),
              (errors * weight).mean().item<double>() + penalty, 1e-6);
}

TEST_P(Unreduced, GradientsAreThoseOfTheSum) {
  const Strategy strategy = strategy_of(GetParam());
  const auto scope = strategy.scope();
  const auto trained = [](Reduction reduction) {
    set_seed(3);
    Sequential model({Dense(2, {.dtype = kFloat64})});
    model.compile({.optimizer = SGD({.learning_rate = 0.01}),
                   .loss = MeanAbsoluteError({.reduction = reduction})});
    model.fit(numbers(7, 3, 0), numbers(7, 2, 1),
              {.epochs = 2, .batch_size = 3, .verbose = Verbose::kSilent, .shuffle = false});
    return model.get_weights();
  };
  const std::vector<Tensor> none = trained(Reduction::kNone), sum = trained(Reduction::kSum);
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_TRUE(none[i].allclose(sum[i]));
}

TEST_P(Unreduced, OfSeveralOutputsCountsInTheTotal) {
  const Strategy strategy = strategy_of(GetParam());
  const auto scope = strategy.scope();
  const KerasTensor x = Input({3}, {.dtype = kFloat64});
  Model model(x, {Dense(2, {.dtype = kFloat64, .name = "a"})(x),
                  Dense(1, {.dtype = kFloat64, .name = "b"})(x)});
  model.compile({.optimizer = SGD({.learning_rate = 0.0}),
                 .loss = {{"a", MeanSquaredError({.reduction = Reduction::kNone})}, {"b", "mse"}},
                 .loss_weights = {{"a", 0.5}, {"b", 2.0}}});
  const Tensor in = numbers(7, 3, 0), a = numbers(7, 2, 1), b = numbers(7, 1, 2);
  const auto data =
      Dataset::from_tensor_slices(Element::tuple({in, Element::tuple({a, b})})).batch(3);
  const Element got = model.predict_nest(in, {.verbose = Verbose::kSilent});
  const double of_a = (got[0].tensor() - a).square().mean().item<double>();
  const double of_b = (got[1].tensor() - b).square().mean().item<double>();
  const Logs logs = model.evaluate(data, {.verbose = Verbose::kSilent});
  EXPECT_NEAR(logs.number("a_loss"), of_a, 1e-6);
  EXPECT_NEAR(logs.number("b_loss"), of_b, 1e-6);
  EXPECT_NEAR(logs.number("loss"), 0.5 * of_a + 2 * of_b, 1e-6);
}

}  // namespace
}  // namespace cohort::keras
