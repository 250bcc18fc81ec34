// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/core.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/keras/layers/internal/gradient_cases.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
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

// What real Keras gives: what is not above the threshold counts as below it.
TEST(ReLU, IsBelowAtItsThreshold) {
  EXPECT_EQ(to_vector<float>(ReLU({.threshold = 1})(tensor({0.5, 1, 2}))),
            (std::vector<float>{0, 0, 2}));
  EXPECT_EQ(to_vector<float>(ReLU({.negative_slope = 0.5, .threshold = 1})(tensor({0.5, 1, 2}))),
            (std::vector<float>{-0.25, 0, 2}));
}

// Keras: Softmax()([[1, 2, 3]], mask=[[True, True, False]]) is [[0.269, 0.731, 0]].
TEST(Softmax, LeavesOutWhatItsMaskDoes) {
  const Tensor x = tensor({1, 2, 3, 1, 2, 3}).reshape({2, 3});
  const Tensor mask = from_vector<int64_t>({1, 1, 0, 0, 0, 0}, {2, 3}).to(kBool);
  const Tensor y = Softmax()(x, {.mask = mask});
  const double first = 1 / (1 + std::exp(1.0));
  const Tensor expected = from_vector<double>({first, 1 - first, 0, 0, 0, 0}, {2, 3});
  EXPECT_TRUE(y.to(kFloat64).allclose(expected, 1e-6, 1e-7)) << y;
  EXPECT_TRUE(Softmax()(x, {.mask = mask.to(kFloat32)}).equal(y));
  const Tensor row = from_vector<int64_t>({1, 1, 0}, {3}).to(kBool);
  EXPECT_TRUE(Softmax()(x, {.mask = row})[1].equal(y[0]));
  EXPECT_THROW(Softmax()(x, {.mask = ones({2}, kBool)}), InvalidArgument);
  const Tensor half = Softmax({.dtype = "mixed_float16"})(x, {.mask = mask});
  EXPECT_TRUE(half.to(kFloat64).allclose(expected, 1e-3, 1e-3)) << half;
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

// Of a model, and of what stands in a Sequential: the numbers of tokens stay what they are.
TEST(InputLayer, TakesDataAsTheyComeInMixedPrecision) {
  for (const char* policy : {"mixed_bfloat16", "mixed_float16"}) {
    set_dtype_policy(policy);
    const Tensor tokens = from_vector<float>({4097, 1001}, {2, 1});
    const Embedding table(5000, 1,
                          {.weights = arange(5000, kFloat32).unsqueeze(1), .dtype = "float32"});
    const KerasTensor x = Input({1});
    Model drawn(x, table(x));
    Sequential row({InputLayer({1}), table});
    const Dense exact(1, {.kernel_initializer = "ones", .dtype = "float32"});
    Model dense(x, exact(x));
    set_dtype_policy({});
    const std::vector<float> same = {4097, 1001};
    EXPECT_EQ(to_vector<float>(drawn(tokens)), same) << policy;
    EXPECT_EQ(to_vector<float>(drawn(tokens.to(kInt64))), same) << policy;
    EXPECT_EQ(to_vector<float>(row(tokens)), same) << policy;
    EXPECT_EQ(to_vector<float>(dense(tokens)), same) << policy;
  }
}

TEST(InputLayer, KeepsAMaskForTheCallAlone) {
  const Tensor x = random_normal({2, 3, 4});
  const Tensor mask = from_vector<int64_t>({1, 0, 0, 1, 1, 0}, {2, 3}).to(kBool);
  const LSTM lstm(2);
  const KerasTensor input = Input({3, 4});
  Model drawn(input, lstm(input));
  Sequential row({InputLayer({3, 4}), lstm});
  const Tensor plain = lstm(x);
  const Tensor masked = lstm(x, {.mask = mask});
  EXPECT_FALSE(masked.equal(plain));
  for (Model* model : std::initializer_list<Model*>{&drawn, &row}) {
    EXPECT_TRUE((*model)(x, {.mask = mask}).equal(masked)) << model->class_name();
    EXPECT_TRUE((*model)(x).equal(plain)) << model->class_name();
  }
  EXPECT_TRUE(lstm(x).equal(plain));
}

TEST(Dot, TakesBatchesWithoutRows) {
  for (const int64_t axis : {1, 2}) {
    const Tensor x = zeros({0, 3, 3}), y = zeros({0, 3, 3});
    EXPECT_EQ(shape_of(Dot(axis)(Element{x, y}).tensor()), (Shape{0, 3, 3}));
  }
  EXPECT_EQ(shape_of(Dot(1)(Element{zeros({0, 3}), zeros({0, 3})}).tensor()), (Shape{0, 1}));
  const Tensor none = Dot(1)(Element{zeros({2, 0, 3}), zeros({2, 0, 5})}).tensor();
  EXPECT_TRUE(none.equal(zeros({2, 3, 5})));
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
