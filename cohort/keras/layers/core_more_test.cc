// SPDX-License-Identifier: Apache-2.0
//
// What golden/layers/core_more.py cannot ask: SpectralNormalization, the way back through a
// ReversibleEmbedding, nests through Identity, and refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/keras/keras.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"

namespace cohort::keras {
namespace {

using cohort::testing::strategy_of;

// What Keras 3.15 on TensorFlow gives for these weights.
void expect_keras_step(const Layer& layer) {
  const auto weights = layer.variables();
  const Tensor kernel =
      from_vector<double>({0.18380366, 0.36760733, 0.551411, 0.73521465}, {2, 2}).to(kFloat32);
  const Tensor u = from_vector<double>({0.5812382, 0.8137335}, {1, 2}).to(kFloat32);
  EXPECT_TRUE(weights[0].value().allclose(u, 1e-5)) << weights[0].value();
  EXPECT_TRUE(weights[1].value().allclose(kernel, 1e-5)) << weights[1].value();
}

SpectralNormalization with_weights() {
  SpectralNormalization layer(Dense(2, {.name = "inner"}), {.name = "bound"});
  layer.base().ensure_built({kUnknownDim, 2});
  const auto weights = layer.variables();
  EXPECT_EQ(weights[0].name(), "bound/vector_u");
  EXPECT_FALSE(weights[0].trainable());
  weights[0].assign(from_vector<float>({1, 0}, {1, 2}));
  weights[1].assign(from_vector<float>({1, 2, 3, 4}, {2, 2}));
  return layer;
}

TEST(SpectralNormalization, DividesTheKernelAsKerasDoes) {
  const SpectralNormalization layer = with_weights();
  const Tensor y = layer(ones({1, 2}), {.training = true});
  EXPECT_TRUE(y.allclose(from_vector<float>({0.73521465F, 1.102822F}, {1, 2}), 1e-5)) << y;
  expect_keras_step(layer);
}

// The second call has changed what the first one was computed with.
TEST(SpectralNormalization, OfTwoCallsInATapeIsAnErrorAndNoWrongGradient) {
  const SpectralNormalization layer = with_weights();
  const Tensor x = ones({1, 2}).requires_grad_();
  const Tensor twice = layer(x, {.training = true}) + layer(x, {.training = true});
  EXPECT_THROW(twice.sum().backward(), std::exception);
  layer(x, {.training = true}).sum().backward();
  EXPECT_TRUE(x.grad().allclose(layer.variables()[1].value().sum(1)));
}

TEST(SpectralNormalization, LeavesWeightsAloneUnlessTraining) {
  const SpectralNormalization layer = with_weights();
  EXPECT_TRUE(layer(ones({1, 2})).equal(from_vector<float>({4, 6}, {1, 2})));
  layer.variables()[1].assign(zeros({2, 2}));
  EXPECT_TRUE(layer(ones({1, 2}), {.training = true}).equal(zeros({1, 2})));
}

TEST(SpectralNormalization, ComesToTheLargestSingularValue) {
  set_seed(4);
  SpectralNormalization layer(Conv2D(4, 3), {.power_iterations = 200});
  layer(random_normal({1, 6, 6, 2}), {.training = true});
  const Tensor kernel = layer.variables()[1].value().reshape({-1, 4});
  Tensor v = random_normal({4, 1});
  for (int i = 0; i < 200; ++i) {
    v = kernel.t().mm(kernel.mm(v));
    v = v / v.norm();
  }
  EXPECT_NEAR(kernel.mm(v).norm().item<double>(), 1, 1e-4);
}

TEST(SpectralNormalization, IsTheSameOnAllReplicas) {
  for (const int replicas : {2, 3}) {
    const Strategy strategy = strategy_of(replicas);
    const auto scope = strategy.scope();
    const SpectralNormalization layer = with_weights();
    strategy.run([&] { layer(ones({1, 2}), {.training = true}); });
    expect_keras_step(layer);
  }
}

TEST(SpectralNormalization, HasTheKernelInFilesAsKeras) {
  const SpectralNormalization layer = with_weights();
  const auto groups = layer.base().weight_groups();
  ASSERT_EQ(groups.size(), 2U);
  ASSERT_EQ(groups[0].weights.size(), 2U);
  EXPECT_TRUE(groups[0].weights[0].name().ends_with("kernel"));
  EXPECT_EQ(groups[1].path, "layer");
  EXPECT_EQ(groups[1].weights.size(), 2U);
}

// In the kernel's own type; a step that fails leaves it as it was.
TEST(SpectralNormalization, DividesUnderMixedPolicies) {
  for (const char* policy : {"mixed_bfloat16", "mixed_float16"}) {
    for (const int replicas : {0, 2}) {
      const Strategy strategy = strategy_of(replicas);
      const auto scope = strategy.scope();
      set_dtype_policy(policy);
      const SpectralNormalization layer = with_weights();
      set_dtype_policy({});
      EXPECT_THROW(strategy.run([&] {
        layer(ones({1, 2}), {.training = true});
        throw InvalidArgument("behind it");
      }),
                   InvalidArgument);
      EXPECT_TRUE(layer.variables()[1].value().equal(from_vector<float>({1, 2, 3, 4}, {2, 2})));
      strategy.run([&] {
        const Tensor y = layer(ones({1, 2}), {.training = true});
        EXPECT_EQ(y.scalar_type(), DTypePolicy(policy).compute_dtype());
        const Tensor want = from_vector<float>({0.73521465F, 1.102822F}, {1, 2});
        EXPECT_TRUE(y.to(kFloat32).allclose(want, 1e-2)) << y;
      });
      expect_keras_step(layer);
    }
  }
}

TEST(SpectralNormalization, RefusesWhatHasNoKernel) {
  EXPECT_THROW(SpectralNormalization(Dense(2), {.power_iterations = 0}), InvalidArgument);
  SpectralNormalization layer{ReLU()};
  EXPECT_THROW(layer(ones({2, 2})), InvalidArgument);
}

TEST(ReversibleEmbedding, LeadsBack) {
  ReversibleEmbedding tied(6, 3), capped(6, 3, {.logit_soft_cap = 0.25});
  ReversibleEmbedding untied(6, 3, {.tie_weights = false});
  const Tensor hidden = random_normal({2, 4, 3});
  EXPECT_THROW(tied.reverse(hidden), FailedPrecondition);
  for (const ReversibleEmbedding& layer : {tied, capped, untied}) layer(zeros({1, 1}, kInt64));
  const Tensor table = tied.variables()[0].value();
  EXPECT_TRUE(tied.reverse(hidden).allclose(hidden.matmul(table.t())));
  const Tensor scores = hidden.matmul(capped.variables()[0].value().t());
  EXPECT_TRUE(capped.reverse(hidden).allclose((scores / 0.25).tanh() * 0.25));
  EXPECT_EQ(shape_of(untied.variables()[1].value()), (Shape{3, 6}));
  EXPECT_TRUE(untied.reverse(hidden).allclose(hidden.matmul(untied.variables()[1].value())));
}

TEST(EinsumDense, BeginsWithTheFansOfItsAxes) {
  set_seed(1);
  EinsumDense layer("abc,dce->aebd", {20, 30, 40}, {.kernel_initializer = "he_normal"});
  layer.base().ensure_built({kUnknownDim, 30, 50});
  const Tensor kernel = layer.variables()[0].value();
  EXPECT_EQ(shape_of(kernel), (Shape{40, 50, 20}));
  EXPECT_NEAR(kernel.std().item<double>(), std::sqrt(2.0 / 50), 0.004);
}

TEST(EinsumDense, RefusesWhatDoesNotFit) {
  for (const char* equation : {"ab,bc", "ab,bc->ad", "ab,cd->ac", "...ab,bc->ac", "a b,bc->ac"}) {
    EXPECT_THROW(EinsumDense(equation, 4), InvalidArgument) << equation;
  }
  EXPECT_THROW(EinsumDense("ab,bc->ac", 4, {.bias_axes = "b"}), InvalidArgument);
  EXPECT_THROW(EinsumDense("ab,bc->ac", 4, {.lora_rank = 2}), Unimplemented);
  EXPECT_THROW(EinsumDense("ab,bc->ac", 4)(ones({2, 3, 4})), InvalidArgument);
  EXPECT_THROW(EinsumDense("abc,cd->abd", {5, 4})(ones({2, 3, 4})), InvalidArgument);
  EXPECT_THROW(EinsumDense("ab,bc->ac", Shape{kUnknownDim})(ones({2, 3})), InvalidArgument);
  EXPECT_EQ(shape_of(EinsumDense("ab,bc->ac", 4)(ones({0, 3}))), (Shape{0, 4}));
}

TEST(Identity, HandsOnNests) {
  const Element pair = Element::tuple({ones({2}), zeros({3})});
  const Element out = layers::Identity()(pair);
  EXPECT_TRUE(out[1].tensor().equal(zeros({3})));
}

}  // namespace
}  // namespace cohort::keras
