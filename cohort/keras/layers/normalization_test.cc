// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/normalization.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/keras/layers/core.h"
#include "cohort/keras/layers/internal/gradient_cases.h"
#include "cohort/keras/sequential.h"
#include "cohort/runtime/random.h"
#include "cohort/strategy/strategies.h"

namespace cohort::keras {
namespace {

using Weights = std::vector<Tensor>;

Tensor trained(const Tensor& x, const Tensor& gamma, const Tensor& beta) {
  const int64_t channels = x.size(-1);
  const Tensor rows = x.reshape({-1, channels});
  const Tensor centered = rows - rows.mean(0);
  const Tensor y = centered * (centered.square().mean(0) + 1e-3).rsqrt() * gamma + beta;
  return y.reshape(x.sizes());
}

Tensor batch_norm(const Tensor& x, const Weights& w) {
  if (x.numel() == 0) return x;
  return trained(x, w[0], w[1]);
}

TEST(BatchNormalization, GradientsMatchPlainOperations) {
  for (const Shape& shape : {Shape{6, 5}, Shape{3, 4, 5, 16}, Shape{4, 3, 7}}) {
    testing::check_gradients({.name = "batch_normalization " + bracketed(shape),
                              .make = []() -> Layer { return BatchNormalization(); },
                              .input = shape,
                              .reference = batch_norm});
  }
}

TEST(BatchNormalization, GradientsMatchWithMovingStatistics) {
  testing::check_gradients({.name = "batch_normalization, inference",
                            .make = []() -> Layer {
                              return BatchNormalization(
                                  {.moving_variance_initializer = Constant(2)});
                            },
                            .input = {5, 4},
                            .reference = [](const Tensor& x, const Weights& w) -> Tensor {
                              return (x - w[2]) * (w[3] + 1e-3).rsqrt() * w[0] + w[1];
                            },
                            .training = false});
}

TEST(BatchNormalization, GradientsMatchWithoutScaleOrCenter) {
  testing::check_gradients({.name = "batch_normalization without scale",
                            .make = []() -> Layer { return BatchNormalization({.scale = false}); },
                            .input = {6, 5},
                            .reference =
                                [](const Tensor& x, const Weights& w) {
                                  return x.numel() == 0
                                             ? x
                                             : trained(x, ones({5}, x.scalar_type()), w[0]);
                                }});
  testing::check_gradients({.name = "batch_normalization without center",
                            .make = []() -> Layer { return BatchNormalization({.center = false}); },
                            .input = {6, 5},
                            .reference =
                                [](const Tensor& x, const Weights& w) {
                                  return x.numel() == 0
                                             ? x
                                             : trained(x, w[0], zeros({5}, x.scalar_type()));
                                }});
}

Tensor batch_norm_relu(const Tensor& x, const Weights& w) { return batch_norm(x, w).relu(); }

// A model computes the two in one, and the layers by themselves one after the other.
TEST(BatchNormalization, GradientsMatchWithReluBehind) {
  const auto sequential = [](const Layer& rectifier) {
    return [rectifier]() -> Layer {
      return std::make_shared<Sequential>(std::vector<Layer>{BatchNormalization(), rectifier});
    };
  };
  for (const Layer& rectifier : {Layer(ReLU()), Layer(Activation("relu"))}) {
    testing::check_gradients({.name = "batch_normalization, " + rectifier.base().class_name(),
                              .make = sequential(rectifier),
                              .input = {6, 4, 5},
                              .reference = batch_norm_relu,
                              .smooth = false});
  }
  testing::check_gradients({.name = "batch_normalization, relu6",
                            .make = sequential(ReLU({.max_value = 6})),
                            .input = {6, 5},
                            .reference = [](const Tensor& x, const Weights& w) -> Tensor {
                              return batch_norm(x, w).clamp(0, 6);
                            },
                            .smooth = false});
  testing::check_gradients({.name = "batch_normalization, relu, functional",
                            .make = []() -> Layer {
                              const KerasTensor x = Input({5});
                              return std::make_shared<Model>(x, ReLU()(BatchNormalization()(x)));
                            },
                            .input = {6, 5},
                            .reference = batch_norm_relu,
                            .smooth = false});
}

TEST(BatchNormalization, GivesWhatItGivesWhereOthersLookAtItToo) {
  const KerasTensor x = Input({5});
  const KerasTensor y = BatchNormalization()(x);
  Model both(x, KerasTensor{y, ReLU()(y)});
  Model once(x, ReLU()(y));
  const Tensor in = random_normal({7, 5});
  for (const bool training : {false, true}) {
    const Element out = both(Element(in), {.training = training});
    EXPECT_LT(out[0].tensor().min().item<double>(), 0);
    EXPECT_TRUE(out[1].tensor().equal(out[0].tensor().relu()));
    EXPECT_TRUE(once(in, {.training = training}).allclose(out[1].tensor(), 1e-5, 1e-6));
  }
}

// As a layer of a program does, which has a call of its own.
struct TwiceNormalized : BatchNormalizationLayer {
  TwiceNormalized() : BatchNormalizationLayer(BatchNormalizationOptions{}) {}
  Tensor call(const Tensor& x, const CallArgs& args) override {
    return BatchNormalizationLayer::call(x, args) * 2;
  }
};

TEST(BatchNormalization, IsNotJoinedToReluWhereAProgramDerivesIt) {
  Sequential model({std::make_shared<TwiceNormalized>(), ReLU()});
  for (int again = 0; again < 2; ++again) {  // the first call builds
    EXPECT_GE(model(random_normal({7, 5}), {.training = true}).min().item<double>(), 0);
  }
}

TEST(BatchNormalization, MovesItsStatisticsAsKerasDoes) {
  clear_session();
  BatchNormalization layer({.momentum = 0.9});
  const Tensor x = from_vector<float>({1, 2, 3, 6}, {4, 1});
  layer(x, {.training = true});
  const auto weights = layer.variables();
  ASSERT_EQ(weights.size(), 4U);
  EXPECT_EQ(weights[2].name(), "batch_normalization/moving_mean");
  EXPECT_FALSE(weights[2].trainable());
  EXPECT_EQ(layer.trainable_variables().size(), 2U);
  EXPECT_NEAR(weights[2].value().item<double>(), 0.1 * 3, 1e-6);
  // The variance of the batch itself, not an estimate of the population's: 14 / 4.
  EXPECT_NEAR(weights[3].value().item<double>(), 0.9 + 0.1 * 3.5, 1e-5);
}

TEST(BatchNormalization, LeavesItsStatisticsAloneWithoutABatchOrWhenFrozen) {
  BatchNormalization layer;
  layer(ones({2, 3}), {.training = false});
  layer(zeros({0, 3}), {.training = true});
  EXPECT_EQ(to_vector<float>(layer.variables()[2].value()), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(to_vector<float>(layer.variables()[3].value()), (std::vector<float>{1, 1, 1}));
  layer.base().set_trainable(false);
  const Tensor y = layer(full({2, 3}, 5), {.training = true});
  EXPECT_EQ(to_vector<float>(layer.variables()[2].value()), (std::vector<float>{0, 0, 0}));
  EXPECT_NEAR(y.view({-1})[0].item<double>(), 5 / std::sqrt(1.001), 1e-5);
}

TEST(BatchNormalization, NormalisesAlongAxisOne) {
  BatchNormalization layer({.axis = 1});
  const Tensor y = layer(random_normal({4, 3, 5, 6}) * 3 + 2, {.training = true});
  EXPECT_EQ(layer.variables()[0].shape(), (Shape{3}));
  EXPECT_LT(y.mean({0, 2, 3}).abs().max().item<double>(), 1e-5);
}

TEST(BatchNormalization, ReplicasKeepTheirOwnStatistics) {
  const MirroredStrategy strategy({"CPU:0", "CPU:1"});
  std::optional<BatchNormalization> layer;
  {
    const auto scope = strategy.scope();
    layer.emplace(BatchNormalizationOptions{.momentum = 0});
  }
  const PerReplica<Tensor> x({full({2, 1}, 1), full({2, 1}, 3)});
  strategy.run([&](const Tensor& t) { return (*layer)(t, {.training = true}); }, x);
  const Variable& mean = layer->variables()[2];
  EXPECT_EQ(mean.components()[0].value().item<double>(), 1);
  EXPECT_EQ(mean.components()[1].value().item<double>(), 3);
  EXPECT_EQ(mean.value().item<double>(), 2);
}

TEST(BatchNormalization, RefusesWhatIsNotThere) {
  EXPECT_THROW(BatchNormalization({.epsilon = 0}), InvalidArgument);
  BatchNormalization layer;
  layer(zeros({2, 3}));
  EXPECT_THROW(layer(zeros({2, 4})), InvalidArgument);
  EXPECT_THROW(layer(zeros({2, 3, 3})), InvalidArgument);
}

TEST(BatchNormalization, OfMixedPrecisionKeepsStatisticsInFloat32) {
  BatchNormalization layer({.dtype = "mixed_bfloat16"}), exact;
  const Tensor x = arange(24).view({8, 3}).to(kFloat32) * 0.1;
  for (const bool training : {true, false}) {
    const Tensor y = layer(x, {.training = training});
    EXPECT_EQ(y.scalar_type(), kBFloat16);
    EXPECT_TRUE(y.to(kFloat32).allclose(exact(x, {.training = training}), 1e-2, 1e-2));
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(layer.variables()[i].value().scalar_type(), kFloat32);
    EXPECT_TRUE(layer.variables()[i].value().equal(exact.variables()[i].value()));
  }
}

}  // namespace
}  // namespace cohort::keras
