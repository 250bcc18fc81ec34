// SPDX-License-Identifier: Apache-2.0
//
// Layers, losses, metrics and fit on a GPU: beside real Keras's numbers and the CPU's.
#include <ATen/Context.h>

#include <cstdio>

#include "cohort/keras/test_device_checks.h"
#include "cohort/keras/test_golden_layers.h"
#include "cohort/testing/temporary_folder.h"
#include "tests/gpu/gpu_fixture.h"

namespace cohort::gpu_tests {
namespace {

class GpuKeras : public GpuTest {
 protected:
  // In float32: convolutions in TF32, which is cuDNN's standard, have 10 bits.
  void SetUp() override {
    GpuTest::SetUp();
    at::globalContext().setAllowTF32CuDNN(false);
    at::globalContext().setAllowTF32CuBLAS(false);
  }
  const Device gpu_ = "GPU:0";
};

TEST_F(GpuKeras, LayersComputeWhatKerasComputes) {
  std::string all;
  int wrong = 0, count = 0;
  const OneDeviceStrategy strategy(gpu_);
  for (const keras::testing::LayerCase& one : keras::testing::layer_cases(COHORT_GOLDEN)) {
    ++count;
    keras::testing::LayerOnDevice layer(one, strategy, gpu_);
    const std::string differences = layer.differences(1e-4);
    if (differences.empty()) continue;
    ++wrong;
    all += one.name + ":\n" + differences;
  }
  EXPECT_EQ(wrong, 0) << wrong << " of " << count << " cases:\n" << all;
}

TEST_F(GpuKeras, LossesAreThoseOfTheCpu) {
  EXPECT_EQ(keras::testing::loss_differences(OneDeviceStrategy(gpu_), gpu_, 1e-4), "");
}

TEST_F(GpuKeras, MetricsAreThoseOfTheCpu) {
  EXPECT_EQ(keras::testing::metric_differences(OneDeviceStrategy(gpu_), gpu_, 1e-5), "");
}

TEST_F(GpuKeras, TrainingIsThatOfTheCpu) {
  EXPECT_EQ(keras::testing::training_differences(OneDeviceStrategy(gpu_), 2e-3), "");
}

TEST_F(GpuKeras, TwoReplicasOfACardTrainAsTwoOfTheCpu) {
  EXPECT_EQ(keras::testing::training_differences(MirroredStrategy({"GPU:0", "GPU:1"}), 2e-3,
                                                 MirroredStrategy({"CPU:0", "CPU:1"})),
            "");
}

TEST_F(GpuKeras, ALabelThatIsNoneMakesTheLossNaN) {
  const OneDeviceStrategy strategy(gpu_);
  const keras::SparseCategoricalCrossentropy loss({.from_logits = true});
  strategy.run([&] {
    const auto there = [&](const Tensor& x) { return internal::runtime::tensor_on(gpu_, x); };
    const Tensor scores = there(at::randn({3, 4}));
    EXPECT_TRUE(loss(there(tensor({0, 4, 1}, kInt64)), scores).isnan().item<bool>());
    EXPECT_TRUE(loss(there(tensor({0, -1, 1}, kInt64)), scores).isnan().item<bool>());
    EXPECT_FALSE(loss(there(tensor({0, 3, 1}, kInt64)), scores).isnan().item<bool>());
  });
}

TEST_F(GpuKeras, HalfPrecisionKeepsChannelsLast) {
  const OneDeviceStrategy strategy(gpu_);
  const Scope scope = strategy.scope();
  for (const char* policy : {"mixed_bfloat16", "mixed_float16"}) {
    const keras::Layer conv =
        keras::Conv2D(16, 3, {.padding = "same", .activation = "relu", .dtype = policy});
    const keras::Layer norm = keras::BatchNormalization({.dtype = policy});
    const keras::Layer dense = keras::Dense(4, {.activation = "relu", .dtype = policy});
    strategy.run([&] {
      const Tensor x = internal::runtime::tensor_on(gpu_, at::randn({4, 8, 8, 8}));
      GradientTape tape;
      const Tensor y = conv(x, {.training = true});
      const Tensor z = norm(y, {.training = true});
      const Tensor out = dense(z.mean({1, 2}), {.training = true});
      for (const Tensor& t : {y, z}) {
        EXPECT_TRUE(t.is_contiguous()) << policy << ": channels are last";
        EXPECT_EQ(t.element_size(), 2U) << policy;
      }
      const Tensor loss = out.to(kFloat32).square().mean();
      for (const keras::Layer& layer : {conv, norm, dense}) {
        for (const Variable& v : layer.trainable_variables()) EXPECT_EQ(v.dtype(), kFloat32);
      }
      const Gradients gradients = tape.gradient(loss, conv.trainable_variables());
      for (const GradientAndVariable& pair : gradients) {
        EXPECT_TRUE(pair.gradient.has_value());
        if (!pair.gradient.has_value()) continue;
        EXPECT_TRUE(pair.gradient.as_tensor().isfinite().all().item<bool>()) << policy;
      }
    });
  }
}

TEST_F(GpuKeras, AModelIsSavedAndReadByTheCpu) {
  const cohort::testing::TemporaryFolder folder;
  const std::string path = folder / "gpu_model.keras";
  const Tensor x = at::randn({16, 12});
  Tensor want;
  {
    const OneDeviceStrategy strategy(gpu_);
    const Scope scope = strategy.scope();
    keras::Sequential model({keras::Dense(8, {.activation = "relu"}), keras::Dense(3)});
    model.compile({.optimizer = keras::Adam(), .loss = "mse"});
    model.fit(x, at::randn({16, 3}), {.epochs = 2, .verbose = keras::Verbose::kSilent});
    want = model.predict(x, {.verbose = keras::Verbose::kSilent});
    model.save(path);
  }
  const auto model = keras::load_model(path);
  const Tensor got = model->predict(x, {.verbose = keras::Verbose::kSilent});
  EXPECT_LE((got - want.to(at::kCPU)).abs().max().item<double>(), 1e-4);
}

}  // namespace
}  // namespace cohort::gpu_tests
