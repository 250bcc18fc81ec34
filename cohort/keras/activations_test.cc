// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

// Others, and gradients, are with the layers: golden/layers/activation.py.
TEST(ActivationFunction, HasKerasNumbers) {
  const std::vector<float> x = {-2, -0.3F, 0.4F, 3};
  const auto e = [](double v) { return std::exp(v); };
  const std::map<std::string, std::vector<double>> expected = {
      {"linear", {-2, -0.3, 0.4, 3}},
      {"relu", {0, 0, 0.4, 3}},
      {"relu6", {0, 0, 0.4, 3}},
      {"leaky_relu", {-0.4, -0.06, 0.4, 3}},
      {"elu", {e(-2) - 1, e(-0.3) - 1, 0.4, 3}},
      {"exponential", {e(-2), e(-0.3), e(0.4), e(3)}},
      {"hard_sigmoid", {1.0 / 6, 2.7 / 6, 3.4 / 6, 1}},
      {"sigmoid", {1 / (1 + e(2)), 1 / (1 + e(0.3)), 1 / (1 + e(-0.4)), 1 / (1 + e(-3))}},
      {"softsign", {-2.0 / 3, -0.3 / 1.3, 0.4 / 1.4, 0.75}},
      {"tanh", {std::tanh(-2), std::tanh(-0.3), std::tanh(0.4), std::tanh(3)}},
      {"hard_tanh", {-1, -0.3, 0.4, 1}},
      {"sparse_plus", {0, 0.1225, 0.49, 3}},
      {"sparse_sigmoid", {0, 0.35, 0.7, 1}},
      {"squareplus",
       {(std::sqrt(8) - 2) / 2, (std::sqrt(4.09) - 0.3) / 2, (std::sqrt(4.16) + 0.4) / 2,
        (std::sqrt(13) + 3) / 2}},
      {"hard_shrink", {-2, 0, 0, 3}},
      {"soft_shrink", {-1.5, 0, 0, 2.5}},
      {"softplus", {std::log1p(e(-2)), std::log1p(e(-0.3)), std::log1p(e(0.4)), std::log1p(e(3))}},
  };
  for (const auto& [name, values] : expected) {
    const auto y = to_vector<double>(ActivationFunction(name)(from_vector(x, {1, 4})));
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(y[i], values[i], 1e-6) << name;
  }
}

// Two entries stay, and sum up to 1. Keras 3.15, which adds up sums, says [0, 0, 0, 0].
TEST(ActivationFunction, SparsemaxIsTheProjectionOntoTheSimplex) {
  const Tensor y =
      ActivationFunction("sparsemax")(from_vector<float>({1.2F, 1, -0.5F, -1}, {1, 4}));
  EXPECT_TRUE(y.allclose(from_vector<float>({0.6F, 0.4F, 0, 0}, {1, 4}))) << y;
}

TEST(ActivationFunction, EveryNameWorks) {
  for (const std::string& name : activation_names()) {
    const ActivationFunction f(name);
    EXPECT_EQ(f.name(), name);
    const Tensor y = f(ones({2, 4}));
    EXPECT_EQ(y.size(0), 2) << name;
    EXPECT_FALSE(y.isnan().any().item<bool>()) << name;
  }
}

TEST(ActivationFunction, TakesACallable) {
  const ActivationFunction f([](const Tensor& x) -> Tensor { return x * 2; });
  EXPECT_EQ(f.name(), "custom");
  EXPECT_EQ(ActivationFunction().name(), "linear");
  EXPECT_EQ(ActivationFunction("linear"), ActivationFunction());
  EXPECT_NE(f, ActivationFunction());
  EXPECT_TRUE(ActivationFunction("relu").is_relu());
}

TEST(ActivationFunction, NamesTheKnownOnesInItsError) {
  testing::expect_error<InvalidArgument>({"relu, relu6, selu"},
                                         [&] { ActivationFunction("rellu"); });
}

}  // namespace
}  // namespace cohort::keras
