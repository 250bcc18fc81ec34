// SPDX-License-Identifier: Apache-2.0
//
// A step that fails leaves no trace in the buffers of a LibTorch module.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/keras/torch_module.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::keras {
namespace {

struct Moving : torch::nn::Module {
  Tensor mean = register_buffer("mean", zeros({4}));
  Tensor forward(const Tensor& x) {
    const at::NoGradGuard no_grad;
    if (is_training()) mean.mul_(0.5).add_(x.mean(0), 0.5);
    return x - mean;
  }
};

class FailedTorchStep : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, FailedTorchStep, ::testing::Values(0, 1, 2, 3));

TEST_P(FailedTorchStep, GivesTheBuffersBack) {
  const Strategy strategy = testing::strategy_of(GetParam());
  const auto scope = strategy.scope();
  const Layer layer = TorchModule([] { return std::make_shared<Moving>(); });
  layer.base().ensure_built({kUnknownDim, 4});
  const int last = strategy.num_replicas_in_sync() - 1;
  const auto run = [&](bool fails) {
    strategy.run([&] {
      layer(ones({2, 4}), {.training = true});
      layer(ones({2, 4}), {.training = true});
      if (fails && std::max(0, current_replica()) == last) throw InvalidArgument("bad");
    });
  };
  const auto means = [&] {
    std::vector<float> out;
    for (const Variable& c : layer.variables()[0].components()) {
      out.push_back(c.value()[0].item<float>());
    }
    return out;
  };
  const auto all = [&](float value) {
    return std::vector<float>(static_cast<std::size_t>(last) + 1, value);
  };
  EXPECT_THROW(run(true), InvalidArgument);
  EXPECT_EQ(means(), all(0));
  run(false);
  EXPECT_EQ(means(), all(0.75F));
}

}  // namespace
}  // namespace cohort::keras
