// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/device_backend.h"
#include "cohort/base/error.h"
#include "cohort/runtime/internal/test_backend.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::runtime {
namespace {

TEST(DeviceBackend, IsThereForEveryLogicalCpu) {
  DeviceBackend& cpu = device_backend("CPU:0");
  EXPECT_EQ(&cpu, &device_backend("/job:worker/task:1/device:CPU:7"));
  EXPECT_EQ(cpu.place("CPU:7"), c10::Device(c10::kCPU));
  EXPECT_EQ(cpu.guard("CPU:1"), nullptr);
  EXPECT_FALSE(cpu.is_asynchronous());
}

TEST(DeviceBackend, SaysThatThereIsNoneForOtherDevices) {
  testing::expect_error<Unimplemented>({"expected CPU devices, got TPU:3: not supported"},
                                       [] { device_backend("TPU:3"); });
  EXPECT_THROW(tensor_on("TPU:0", ones({2})), Unimplemented);
  EXPECT_THROW(copy_on("TPU:0", ones({2})), Unimplemented);
  const TestBackend none(0);
  testing::expect_error<Unimplemented>({"expected CPU devices, got GPU:0: this machine shows no"},
                                       [] { device_backend("GPU:0"); });
}

TEST(DeviceBackend, ARegionOfTheCpuIsZeroAndStaysWhereItIs) {
  DeviceBackend& cpu = device_backend(host_device());
  const auto region = cpu.reserve(host_device(), 100);
  ASSERT_GE(region->bytes(), 100u);
  region->use(0, region->bytes());
  Tensor view = cpu.view(host_device(), region->data(), {25}, kFloat32, [](void*) {});
  EXPECT_EQ(view.data_ptr(), region->data());
  EXPECT_EQ(view.sum().item<float>(), 0);
  view.fill_(3);
  region->clear(40, 8);
  region->use(40, 8);
  EXPECT_EQ(view.sum().item<float>(), 3 * 23);
}

TEST(DeviceBackend, ATensorOfAnotherDeviceIsACopyOnlyWhereItHasTo) {
  const Tensor x = ones({2});
  EXPECT_TRUE(tensor_on("CPU:3", x).is_same(x));
  EXPECT_FALSE(copy_on("CPU:3", x).is_alias_of(x));
}

TEST(DeviceBackend, CopiesAreMadeByTheDeviceThatIsNoCpu) {
  TestBackend gpus;
  const char from[] = "abc";
  char to[] = "   ";
  const auto copy = [&](const Device& destination, const Device& source) {
    copy_memory(destination, reinterpret_cast<std::byte*>(to), source,
                reinterpret_cast<const std::byte*>(from), sizeof from);
  };
  copy("GPU:1", "CPU:0");
  EXPECT_EQ(std::string(to), "abc");
  copy("CPU:1", "GPU:0");
  copy("GPU:0", "GPU:1");
  copy("CPU:0", "CPU:1");
  EXPECT_EQ(gpus.log().take(),
            (std::vector<std::string>{"copy CPU:0 to GPU:1", "copy GPU:0 to CPU:1",
                                      "copy GPU:1 to GPU:0"}));
}

}  // namespace
}  // namespace cohort::internal::runtime
