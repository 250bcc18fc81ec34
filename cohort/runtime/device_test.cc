// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "cohort/base/error.h"
#include "cohort/runtime/topology.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

/// Sets or unsets an environment variable for its lifetime.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~ScopedEnv() { set(before_ ? before_->c_str() : nullptr); }

 private:
  void set(const char* value) {
    if (value == nullptr) {
      unsetenv(name_);
    } else {
      setenv(name_, value, 1);
    }
  }
  const char* const name_;
  std::optional<std::string> before_;
};

TEST(Device, HasACanonicalName) {
  for (const char* name :
       {"CPU:0", "cpu:0", "CPU", "/cpu:0", "/device:CPU:0", "device:cpu:0",
        "/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/device:CPU:0"}) {
    EXPECT_EQ(Device(name).name(), "/job:localhost/replica:0/task:0/device:CPU:0") << name;
    EXPECT_EQ(Device(name), Device("CPU:0")) << name;
  }
  EXPECT_EQ(Device("gpu:12").short_name(), "GPU:12");
  EXPECT_EQ(Device(std::string("TPU:3")).name(), "/job:localhost/replica:0/task:0/device:TPU:3");
}

TEST(Device, KnowsItsParts) {
  const Device device("/job:ps/replica:0/task:5/device:GPU:2");
  EXPECT_EQ(device.kind(), DeviceKind::kGpu);
  EXPECT_EQ(device.index(), 2);
  EXPECT_EQ(device.job(), "ps");
  EXPECT_EQ(device.task(), 5);
  EXPECT_EQ(device.name(), "/job:ps/replica:0/task:5/device:GPU:2");
  EXPECT_EQ(Device("/job:worker/task:1/cpu:3").name(), "/job:worker/replica:0/task:1/device:CPU:3");
  EXPECT_NE(device, Device("GPU:2"));
  EXPECT_NE(Device("CPU:0"), Device("CPU:1"));
  EXPECT_NE(Device("CPU:0"), Device("GPU:0"));
}

TEST(Device, IsADeviceOfLibTorch) {
  EXPECT_EQ(Device("CPU:3").at_device(), c10::Device(c10::kCPU));
  EXPECT_EQ(Device("GPU:1").at_device(), c10::Device(c10::kCUDA, 1));
  EXPECT_EQ(Device("/job:worker/replica:0/task:1/device:GPU:0").at_device(),
            c10::Device(c10::kCUDA, 0));
  EXPECT_EQ(Device("TPU:2").at_device(), c10::Device(c10::kXLA, 2));
  EXPECT_THROW(Device("GPU:128").at_device(), InvalidArgument);
  EXPECT_EQ(Device("CPU:1000").at_device(), c10::Device(c10::kCPU)) << "logical CPUs have no end";
}

TEST(Device, RefusesOtherSpellings) {
  for (const char* name :
       {"", "/", "cpu0", "XPU:0", "CPU:", "CPU:x", "CPU:-1", "CPU:1x", "CPU: 1", "CPU:0:1",
        "/device:CPU:0:1", "CPU:0/GPU:0", "CPU:0/", "//CPU:0", "/job:/CPU:0", "/job:a:b/CPU:0",
        "/task:x/CPU:0", "/job:worker/task:0", "CPU:99999999999999999999"}) {
    EXPECT_THROW(Device{name}, InvalidArgument) << '"' << name << '"';
  }
  testing::expect_error<InvalidArgument>({"got \"XPU:0\""}, [&] { Device("XPU:0"); });
}

TEST(ListDevices, GivesALogicalCpuForEachUsableCoreUpToEight) {
  const ScopedEnv unset("COHORT_CPU_DEVICES", nullptr);
  const std::vector<Device> devices = list_devices(DeviceKind::kCpu);
  ASSERT_EQ(static_cast<int>(devices.size()), std::min(internal::runtime::usable_cores(), 8));
  for (int i = 0; i < static_cast<int>(devices.size()); ++i) {
    EXPECT_EQ(devices[i].kind(), DeviceKind::kCpu);
    EXPECT_EQ(devices[i].index(), i);
  }
  EXPECT_TRUE(list_devices(DeviceKind::kGpu).empty());
  EXPECT_TRUE(list_devices(DeviceKind::kTpu).empty());
}

TEST(ListDevices, TakesTheNumberFromTheEnvironment) {
  const ScopedEnv eleven("COHORT_CPU_DEVICES", "11");
  const std::vector<Device> devices = list_devices(DeviceKind::kCpu);
  ASSERT_EQ(devices.size(), 11U);
  EXPECT_EQ(devices[10].short_name(), "CPU:10");
  const ScopedEnv empty("COHORT_CPU_DEVICES", "");
  EXPECT_FALSE(list_devices(DeviceKind::kCpu).empty());
}

TEST(ListDevices, RefusesAnotherValueInTheEnvironment) {
  for (const char* value : {"0", "-2", "two", "2x", " 2", "99999999999999"}) {
    const ScopedEnv env("COHORT_CPU_DEVICES", value);
    EXPECT_THROW(list_devices(DeviceKind::kCpu), InvalidArgument) << value;
  }
}

TEST(Topology, HasAtLeastOneUsableCore) {
  EXPECT_GE(internal::runtime::usable_cores(), 1);
  EXPECT_EQ(internal::runtime::usable_cores(), internal::runtime::usable_cores());
}

}  // namespace
}  // namespace cohort
