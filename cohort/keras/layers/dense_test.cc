// SPDX-License-Identifier: Apache-2.0
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/keras/layers/core.h"
#include "cohort/keras/layers/internal/gradient_cases.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using Weights = std::vector<Tensor>;

testing::GradientCase dense_case(const char* activation, Shape input, int64_t units,
                                 bool use_bias = true) {
  const bool relu = std::string(activation) == "relu";
  return {.name = std::string("dense ") + activation,
          .make = [=]() -> Layer {
            return Dense(units, {.activation = activation, .use_bias = use_bias});
          },
          .input = std::move(input),
          .reference =
              [=](const Tensor& x, const Weights& w) {
                Tensor y = x.matmul(w[0]);
                if (use_bias) y = y + w[1];
                return relu ? y.relu() : ActivationFunction(activation)(y);
              }};
}

TEST(Dense, GradientsMatchPlainOperations) {
  testing::check_gradients(dense_case("linear", {5, 7}, 3));
  testing::check_gradients(dense_case("relu", {5, 7}, 21));
  testing::check_gradients(dense_case("relu", {6, 80}, 80));
  testing::check_gradients(dense_case("relu", {130, 48}, 32));  // enough rows to transpose
  testing::check_gradients(dense_case("tanh", {5, 7}, 7));
}

TEST(Dense, GradientsMatchWithoutABias) {
  testing::check_gradients(dense_case("relu", {4, 6}, 6, false));
  testing::check_gradients(dense_case("linear", {4, 6}, 5, false));
}

TEST(Dense, TakesInputsOfHigherRank) {
  testing::check_gradients(dense_case("relu", {2, 3, 5}, 5));
  testing::check_gradients(dense_case("linear", {2, 3, 2, 5}, 4));
}

TEST(Dense, HasKerasWeightsAndNumbers) {
  clear_session();
  Dense layer(
      3, {.activation = "relu", .kernel_initializer = "ones", .bias_initializer = Constant(-1.5)});
  const Tensor y = layer(from_vector<float>({1, 2, 0, 1}, {2, 2}));
  EXPECT_EQ(to_vector<float>(y), (std::vector<float>{1.5, 1.5, 1.5, 0, 0, 0}));
  ASSERT_EQ(layer.variables().size(), 2U);
  EXPECT_EQ(layer.variables()[0].name(), "dense/kernel");
  EXPECT_EQ(layer.variables()[0].shape(), (Shape{2, 3}));
  EXPECT_EQ(layer.variables()[1].name(), "dense/bias");
  EXPECT_EQ(layer.base().compute_output_shape({kUnknownDim, 2}), (Shape{kUnknownDim, 3}));
}

TEST(Dense, NamesItselfWhenTheInputIsWrong) {
  clear_session();
  Dense first(3);
  Dense second(4);
  second(zeros({2, 784}));
  EXPECT_EQ(testing::error_text<InvalidArgument>([&] {
              second(zeros({32, 100}));
            }),
            "[dense_1] expected inputs with last axis 784, got shape [32, 100] (when calling "
            "Dense.call() of layer dense_1 with float32 [32, 100])");
  EXPECT_THROW(second(zeros({784})), InvalidArgument);
  EXPECT_THROW(Dense(0), InvalidArgument);
}

TEST(Dense, ConvertsInputsOfAnotherType) {
  Dense layer(2, {.kernel_initializer = "ones"});
  const Tensor y = layer(ones({1, 3}, kUint8));
  EXPECT_EQ(y.scalar_type(), kFloat32);
  EXPECT_EQ(to_vector<float>(y), (std::vector<float>{3, 3}));
}

TEST(Dense, RecordsNothingWhereNothingIsRecorded) {
  Dense layer(2);
  const bool before = c10::GradMode::is_enabled();
  c10::GradMode::set_enabled(true);
  EXPECT_TRUE(layer(zeros({1, 3})).requires_grad());
  c10::GradMode::set_enabled(false);
  EXPECT_FALSE(layer(zeros({1, 3})).requires_grad());
  c10::GradMode::set_enabled(before);
}

TEST(Dense, FailsWhenItsOutputWasChanged) {
  Dense layer(4, {.activation = "relu"});
  GradientTape tape;
  const Tensor y = layer(ones({2, 3}));
  const Tensor loss = y.sum();
  y.detach().add_(1);
  EXPECT_ANY_THROW(tape.gradient(loss, layer.trainable_variables()));
}

}  // namespace
}  // namespace cohort::keras
