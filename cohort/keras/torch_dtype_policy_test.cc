// SPDX-License-Identifier: Apache-2.0
//
// LibTorch modules as layers where a dtype policy holds: they compute in the type of their own
// parameters, which no policy changes.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "cohort/base/scope_exit.h"
#include "cohort/keras/layers/core.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/torch_module.h"
#include "cohort/runtime/random.h"

namespace cohort::keras {
namespace {

namespace nn = torch::nn;

class TorchModulesUnderPolicy : public ::testing::TestWithParam<const char*> {
 protected:
  TorchModulesUnderPolicy() { set_dtype_policy(GetParam()); }
  ~TorchModulesUnderPolicy() override { set_dtype_policy({}); }
};
INSTANTIATE_TEST_SUITE_P(Policies, TorchModulesUnderPolicy,
                         ::testing::Values("float32", "float64", "mixed_bfloat16"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(TorchModulesUnderPolicy, ComputeInTheirOwnType) {
  const nn::Linear linear(4, 3);
  const Layer layer = TorchModule(linear, "net");
  const Tensor x = random_normal({5, 4});
  for (const DType type : {kFloat32, kFloat64, kBFloat16}) {
    const Tensor given = x.to(type);
    const Tensor y = layer(given);
    EXPECT_EQ(y.scalar_type(), kFloat32);
    const auto weights = layer.variables();
    const Tensor want = given.to(kFloat32).matmul(weights[0].value().t()) + weights[1].value();
    EXPECT_TRUE(y.allclose(want, 1e-5, 1e-6));
  }
  EXPECT_EQ(layer.variables()[0].dtype(), kFloat32);
}

TEST_P(TorchModulesUnderPolicy, TrainBetweenLayersOfThePolicy) {
  Sequential model({InputLayer({6}), Dense(4, {.activation = "relu"}),
                    TorchModule(nn::Sequential(nn::Linear(4, 8), nn::Tanh())), Dense(2)});
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse"});
  const Tensor x = random_normal({16, 6}), y = random_normal({16, 2});
  const Tensor before = model.predict(x, {.verbose = Verbose::kSilent});
  EXPECT_EQ(before.scalar_type(), dtype_policy().compute_dtype());
  const std::vector<Tensor> weights = model.get_weights();
  const History history =
      model.fit(x, y, {.epochs = 3, .batch_size = 16, .verbose = Verbose::kSilent});
  const std::vector<double> losses = history["loss"];
  EXPECT_LT(losses.back(), losses.front());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    EXPECT_FALSE(model.get_weights()[i].equal(weights[i])) << model.variables()[i].name();
  }
}

TEST(TorchModulesOfFloatX, KnowTheirOutputShape) {
  set_floatx(kFloat64);
  const cohort::internal::base::ScopeExit back([] { set_floatx(kFloat32); });
  const Layer layer = TorchModule(nn::Linear(4, 3), "net");
  Sequential model({InputLayer({4}), layer, Dense(2)});
  EXPECT_EQ(model.compute_output_shape({kUnknownDim, 4}), (Shape{kUnknownDim, 2}));
}

}  // namespace
}  // namespace cohort::keras
