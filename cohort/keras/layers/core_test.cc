// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/core.h"

#include <gtest/gtest.h>

#include <optional>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/keras/layers/internal/gradient_cases.h"
#include "cohort/runtime/random.h"
#include "cohort/strategy/strategies.h"

namespace cohort::keras {
namespace {

using Weights = std::vector<Tensor>;

TEST(Flatten, KeepsTheBatch) {
  Flatten layer;
  EXPECT_EQ(shape_of(layer(zeros({3, 2, 4}))), (Shape{3, 8}));
  EXPECT_EQ(shape_of(layer(zeros({0, 2, 4}))), (Shape{0, 8}));
  EXPECT_EQ(shape_of(layer(zeros({3}))), (Shape{3, 1}));
  EXPECT_EQ(layer.base().compute_output_shape({kUnknownDim, 2, 4}), (Shape{kUnknownDim, 8}));
  EXPECT_EQ(layer.base().compute_output_shape({kUnknownDim, kUnknownDim, 4}),
            (Shape{kUnknownDim, kUnknownDim}));
}

TEST(Reshape, FindsTheSizeThatIsLeftOpen) {
  Reshape layer({2, -1});
  EXPECT_EQ(shape_of(layer(zeros({3, 8}))), (Shape{3, 2, 4}));
  EXPECT_EQ(shape_of(layer(zeros({0, 8}))), (Shape{0, 2, 4}));
  EXPECT_EQ(layer.base().compute_output_shape({kUnknownDim, 8}), (Shape{kUnknownDim, 2, 4}));
  EXPECT_THROW(layer(zeros({3, 7})), InvalidArgument);
  EXPECT_THROW(Reshape({-1, -1}), InvalidArgument);
  EXPECT_THROW(Reshape({3})(zeros({2, 4})), InvalidArgument);
}

TEST(Activation, AppliesTheFunction) {
  Activation layer("relu");
  EXPECT_EQ(to_vector<float>(layer(tensor({-1, 2}))), (std::vector<float>{0, 2}));
  Activation own([](const Tensor& x) -> Tensor { return x * 3; });
  EXPECT_EQ(to_vector<float>(own(tensor({1, 2}))), (std::vector<float>{3, 6}));
}

TEST(ReLU, HasKerasOptions) {
  EXPECT_EQ(to_vector<float>(ReLU()(tensor({-1, 2}))), (std::vector<float>{0, 2}));
  ReLU all({.max_value = 4, .negative_slope = 0.5, .threshold = 1});
  EXPECT_EQ(to_vector<float>(all(tensor({-1, 0.5, 2, 9}))), (std::vector<float>{-1, -0.25, 2, 4}));
  EXPECT_THROW(ReLU({.negative_slope = -1}), InvalidArgument);
}

TEST(Softmax, SumsToOneAlongItsAxis) {
  const Tensor y = Softmax({.axis = 1})(random_normal({2, 3, 4}));
  EXPECT_LT((y.sum(1) - 1).abs().max().item<double>(), 1e-6);
}

TEST(Rescaling, WorksInFloatingPoint) {
  const Tensor y = Rescaling(1.0 / 255, {.offset = -0.5})(full({1, 1}, 255, kUint8));
  EXPECT_EQ(y.scalar_type(), kFloat32);
  EXPECT_FLOAT_EQ(y.item<float>(), 0.5);
}

TEST(InputLayer, DeclaresAndChecksAShape) {
  InputLayer layer({28, kUnknownDim});
  EXPECT_EQ(layer.base().declared_input_shape(), (Shape{kUnknownDim, 28, kUnknownDim}));
  EXPECT_EQ(shape_of(layer(zeros({3, 28, 5}))), (Shape{3, 28, 5}));
  EXPECT_THROW(layer(zeros({3, 27, 5})), InvalidArgument);
  EXPECT_FALSE(Dense(3).base().declared_input_shape().has_value());
}

TEST(Layers, WithoutWeightsHavePlainGradients) {
  testing::check_gradients({.name = "flatten",
                            .make = []() -> Layer { return Flatten(); },
                            .input = {2, 3, 4},
                            .reference =
                                [](const Tensor& x, const Weights&) {
                                  return x.reshape({x.size(0), 12});
                                }});
  testing::check_gradients(
      {.name = "rescaling",
       .make = []() -> Layer { return Rescaling(2, {.offset = 1}); },
       .input = {3, 4},
       .reference = [](const Tensor& x, const Weights&) -> Tensor { return x * 2 + 1; }});
  testing::check_gradients(
      {.name = "softmax",
       .make = []() -> Layer { return Softmax(); },
       .input = {3, 4},
       .reference = [](const Tensor& x, const Weights&) -> Tensor { return x.softmax(-1); }});
}

TEST(Dropout, KeepsAShareAndScalesIt) {
  set_seed(1);
  Dropout layer(0.3);
  const Tensor y = layer(ones({100, 1000}), {.training = true});
  EXPECT_NEAR(y.eq(0).to(kFloat64).mean().item<double>(), 0.3, 0.006);
  EXPECT_FLOAT_EQ(y.max().item<float>(), static_cast<float>(1 / 0.7));
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.01);
}

TEST(Dropout, IsTheIdentityInInference) {
  Dropout layer(0.9);
  const Tensor x = random_normal({4, 5});
  EXPECT_TRUE(layer(x).is_same(x));
  EXPECT_TRUE(Dropout(0)(x, {.training = true}).is_same(x));
  EXPECT_EQ(Dropout(1)(x, {.training = true}).abs().sum().item<double>(), 0);
  EXPECT_THROW(Dropout(1.5), InvalidArgument);
}

TEST(Dropout, RepeatsWithTheSeedAndChangesWithTheStep) {
  const auto draw = [](bool second_step) {
    set_seed(5);
    Dropout layer(0.5);
    const Tensor x = ones({8, 64});
    const Tensor first = layer(x, {.training = true});
    return second_step ? layer(x, {.training = true}) : first;
  };
  EXPECT_TRUE(draw(false).equal(draw(false)));
  EXPECT_TRUE(draw(true).equal(draw(true)));
  EXPECT_FALSE(draw(false).equal(draw(true)));
  Dropout a(0.5, {.seed = 3});
  Dropout b(0.5, {.seed = 3});
  EXPECT_TRUE(a(ones({9, 9}), {.training = true}).equal(b(ones({9, 9}), {.training = true})));
}

TEST(Dropout, SharesDrawsAlongTheNoiseShape) {
  Dropout layer(0.5, {.noise_shape = Shape{kUnknownDim, 1, 6}, .seed = 2});
  const Tensor y = layer(ones({4, 5, 6}), {.training = true});
  EXPECT_TRUE(y.select(1, 0).equal(y.select(1, 4)));
  EXPECT_THROW(Dropout(0.5, {.noise_shape = Shape{2}})(ones({4, 5}), {.training = true}),
               InvalidArgument);
}

TEST(Dropout, DrawsApartOnEveryReplicaAndTheSameInEveryRun) {
  const auto run = [] {
    set_seed(11);
    const MirroredStrategy strategy({"CPU:0", "CPU:1"});
    std::optional<Dropout> layer;
    {
      const auto scope = strategy.scope();
      layer.emplace(0.5);
    }
    const auto y = strategy.run([&](const Tensor& x) { return (*layer)(x, {.training = true}); },
                                ones({4, 64}));
    return strategy.local_results(y);
  };
  const auto first = run();
  const auto second = run();
  EXPECT_FALSE(first[0].equal(first[1]));
  EXPECT_TRUE(first[0].equal(second[0]));
  EXPECT_TRUE(first[1].equal(second[1]));
}

TEST(Dropout, PassesGradientsThroughItsMask) {
  Dropout layer(0.5, {.seed = 4});
  Tensor x = ones({3, 40});
  GradientTape tape;
  tape.watch(x);
  const Tensor y = layer(x, {.training = true});
  EXPECT_TRUE(tape.gradient(y, x).equal(y.detach()));
}

}  // namespace
}  // namespace cohort::keras
