// SPDX-License-Identifier: Apache-2.0
//
// Names of devices as TensorFlow writes them. Logical CPUs need no set-up: CPU:3 is a fourth
// replica's share of the cores, however many cores there are.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace cohort {

enum class DeviceKind { kCpu, kGpu, kTpu };

/// "GPU:1", "/gpu:1", "CPU", "/device:CPU:0" or "/job:ps/replica:0/task:1/device:CPU:0".
/// Errors: InvalidArgument for another spelling. TF: tf.DeviceSpec.
class Device {
 public:
  Device(const char* name);         // NOLINT: implicit, names stand where devices are wanted
  Device(const std::string& name);  // NOLINT

  DeviceKind kind() const { return kind_; }
  int index() const { return index_; }
  const std::string& job() const { return job_; }
  int task() const { return task_; }
  /// Canonical full name: "/job:localhost/replica:0/task:0/device:CPU:0".
  std::string name() const;
  /// "CPU:0".
  std::string short_name() const;
  /// What LibTorch calls it: at::kCPU for every logical CPU, GPU:1 is at::Device(at::kCUDA, 1). The
  /// name alone says it: the device need not be there. Errors: InvalidArgument for an index that
  ///         LibTorch has no number for (above 127).
  c10::Device at_device() const;
  bool operator==(const Device&) const = default;

 private:
  std::string job_ = "localhost";
  int replica_ = 0;
  int task_ = 0;
  DeviceKind kind_ = DeviceKind::kCpu;
  int index_ = 0;
};

/// "CPU:1"; the full name where that is another machine's.
std::ostream& operator<<(std::ostream& out, const Device& device);

/// kCpu: COHORT_CPU_DEVICES logical CPUs, else one for each usable core, at most 8.
/// kGpu: those that CUDA shows (CUDA_VISIBLE_DEVICES), or the logical ones that they are split in;
/// none where there is no GPU, or where Cohort was built without CUDA. kTpu: none in this version.
std::vector<Device> list_devices(DeviceKind kind);

struct LogicalDeviceConfiguration {
  int64_t memory_limit = 0;  ///< Megabytes; 0: none. Those of one card count together.
};

/// Splits one GPU into logical ones, each a replica's, with a stream of its own: "GPU:0" becomes
/// GPU:0, GPU:1, ..., and the following cards are numbered after them.
/// Order: before anything uses a GPU, the last card first. Threads: no other may run meanwhile.
/// Errors: InvalidArgument for a device that is not there, an empty list, negative limits and those
///         above the card's memory; FailedPrecondition when a GPU is in use. Of CPUs:
///         Unimplemented, logical ones need no set-up. TF:
///         tf.config.set_logical_device_configuration.
void set_logical_device_configuration(const Device& physical,
                                      const std::vector<LogicalDeviceConfiguration>& logical);

}  // namespace cohort
