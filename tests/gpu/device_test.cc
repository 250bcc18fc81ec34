// SPDX-License-Identifier: Apache-2.0
//
// The backend of GPUs: memory, copies, streams.
#include <ATen/ops/empty.h>
#include <c10/core/AutogradState.h>

#include <vector>

#include "cohort/runtime/device_backend.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"
#include "tests/gpu/gpu_fixture.h"

namespace cohort::gpu_tests {
namespace {

using internal::runtime::copy_memory;
using internal::runtime::device_backend;
using internal::runtime::DeviceBackend;
using internal::runtime::host_device;
using internal::runtime::Region;

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

class GpuDevice : public GpuTest {
 protected:
  const Device gpu_ = "GPU:0";
  DeviceBackend& backend() { return device_backend(gpu_); }

  std::vector<float> read(const std::byte* data, std::size_t count) {
    std::vector<float> out(count, -1);
    copy_memory(host_device(), reinterpret_cast<std::byte*>(out.data()), gpu_, data,
                count * sizeof(float));
    return out;
  }
  void write(std::byte* data, const std::vector<float>& values) {
    copy_memory(gpu_, data, host_device(), reinterpret_cast<const std::byte*>(values.data()),
                values.size() * sizeof(float));
  }
};

TEST_F(GpuDevice, LogicalGpusShareACard) {
  const std::vector<Device> gpus = list_devices(DeviceKind::kGpu);
  ASSERT_GE(gpus.size(), 2U);
  EXPECT_EQ(backend().place(gpus[0]), backend().place(gpus[1]));
  EXPECT_TRUE(backend().place(gpus[0]).is_cuda());
  testing::expect_error<InvalidArgument>({"GPU:99"}, [&] { backend().place("GPU:99"); });
}

TEST_F(GpuDevice, MemoryIsZeroWhereItIsUsedAndAfterClear) {
  const std::unique_ptr<Region> region = backend().reserve(gpu_, 64 * kMegabyte);
  ASSERT_GE(region->bytes(), 64 * kMegabyte);
  const std::vector<float> ones(1024, 1.0F);
  const std::vector<float> zeros(1024, 0.0F);
  // Across the border of two pieces, and far from the start.
  for (const std::size_t at : {2 * kMegabyte - 2048, 40 * kMegabyte}) {
    region->use(at, 4096);
    EXPECT_EQ(read(region->data() + at, 1024), zeros) << at;
    write(region->data() + at, ones);
    EXPECT_EQ(read(region->data() + at, 1024), ones) << at;
    region->clear(at, 4096);
    region->use(at, 4096);
    EXPECT_EQ(read(region->data() + at, 1024), zeros) << at;
  }
}

TEST_F(GpuDevice, ClearLeavesNeighboursAlone) {
  const std::unique_ptr<Region> region = backend().reserve(gpu_, 16 * kMegabyte);
  region->use(0, 12 * kMegabyte);
  const std::vector<float> ones(16, 1.0F);
  const std::vector<float> zeros(16, 0.0F);
  write(region->data() + kMegabyte - 64, ones);
  write(region->data() + kMegabyte, ones);
  write(region->data() + 9 * kMegabyte - 64, ones);
  write(region->data() + 9 * kMegabyte, ones);
  region->clear(kMegabyte, 8 * kMegabyte);
  EXPECT_EQ(read(region->data() + kMegabyte - 64, 16), ones);
  EXPECT_EQ(read(region->data() + 9 * kMegabyte, 16), ones);
  region->use(kMegabyte, 8 * kMegabyte);
  EXPECT_EQ(read(region->data() + kMegabyte, 16), zeros);
  EXPECT_EQ(read(region->data() + 9 * kMegabyte - 64, 16), zeros);
}

TEST_F(GpuDevice, ViewsAreTensorsOverTheMemory) {
  const std::unique_ptr<Region> region = backend().reserve(gpu_, kMegabyte);
  region->use(0, kMegabyte);
  bool released = false;
  {
    Tensor view = backend().view(gpu_, region->data() + 256, {4, 8}, kFloat32,
                                 [&](void*) { released = true; });
    EXPECT_EQ(view.device(), backend().place(gpu_));
    view.fill_(3);
    EXPECT_EQ(view.sum().item<double>(), 96);
    EXPECT_EQ(read(region->data() + 256, 32), std::vector<float>(32, 3.0F));
    const uint32_t version = view._version();
    backend().view(gpu_, region->data() + 256, {4}, kFloat32, [](void*) {}).fill_(1);
    EXPECT_EQ(view._version(), version) << "each view has a counter of its own";
  }
  EXPECT_TRUE(released);
}

TEST_F(GpuDevice, AGuardSetsStreamAndBackwardThread) {
  auto& autograd = c10::AutogradState::get_tls_state();
  EXPECT_TRUE(autograd.get_multithreading_enabled());
  {
    const auto guard = backend().guard("GPU:1");
    EXPECT_FALSE(autograd.get_multithreading_enabled());
    EXPECT_EQ(ones({5}).to(backend().place("GPU:1")).sum().item<double>(), 5);
  }
  EXPECT_TRUE(autograd.get_multithreading_enabled());
}

TEST_F(GpuDevice, WhatIsAwaitedHasHappened) {
  const c10::Device place = backend().place(gpu_);
  Tensor x = zeros({8 << 20}).to(place);
  for (int round = 0; round < 20; ++round) {
    {
      const auto guard = backend().guard("GPU:1");
      backend().await(gpu_);
      for (int i = 0; i < 20; ++i) x.add_(1);
      backend().publish("GPU:1");
    }
    backend().await("GPU:1");
    const Tensor seen = x.min() + x.max();
    EXPECT_EQ(seen.item<double>(), 2.0 * 20 * (round + 1));
    backend().publish(gpu_);
  }
}

TEST_F(GpuDevice, TooMuchMemoryIsAnErrorThatSaysWhoHasIt) {
  const std::size_t most = std::size_t{1} << 40;  // a terabyte of address space
  testing::expect_error<Error>({"[variable] expected", "are free", "LibTorch's tensors"}, [&] {
    const std::unique_ptr<Region> region = backend().reserve(gpu_, most);
    region->use(0, most);
  });
  // And all of it is free again.
  const std::unique_ptr<Region> region = backend().reserve(gpu_, kMegabyte);
  region->use(0, kMegabyte);
}

TEST_F(GpuDevice, AStepOutOfMemorySaysWhoHasIt) {
  const OneDeviceStrategy strategy(gpu_);
  const c10::Device place = backend().place(gpu_);
  const auto step = [&] {
    const Tensor much = at::empty({int64_t{1} << 40}, at::TensorOptions().device(place));
  };
  testing::expect_error(ErrorCode::kResourceExhausted,
                        {"[strategy.run] replica 0 on GPU:0 is out of memory", "are free",
                         "hold parameters, gradients and slots"},
                        [&] { strategy.run(step); });
  strategy.run([&] { EXPECT_EQ(ones({3}).to(place).sum().item<double>(), 3); });
}

TEST_F(GpuDevice, GpusAreSplitBeforeTheyAreUsed) {
  const auto guard = backend().guard(gpu_);
  testing::expect_error<FailedPrecondition>(
      {"[set_logical_device_configuration] expected a call before GPUs are used"},
      [] { set_logical_device_configuration("GPU:0", {{}}); });
}

}  // namespace
}  // namespace cohort::gpu_tests
