// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/strategies.h"

#include <utility>

#include "cohort/base/check.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/strategy/internal/local_strategy.h"

namespace cohort {
namespace {

std::vector<Device> default_devices() {
  std::vector<Device> gpus = list_devices(DeviceKind::kGpu);
  return gpus.empty() ? list_devices(DeviceKind::kCpu) : gpus;
}

// TensorFlow's is CPU:0 of several; but parameters are where their replicas can compute with them.
Device default_parameter_device(const std::vector<Device>& compute) {
  const bool is_gpu = compute.front().kind() == DeviceKind::kGpu;
  return compute.size() == 1 || is_gpu ? compute.front() : internal::runtime::host_device();
}

}  // namespace

MirroredStrategy::MirroredStrategy(MirroredOptions options) {
  if (options.devices.empty()) options.devices = default_devices();
  extended_ =
      std::make_shared<internal::strategy::LocalStrategy>(internal::strategy::LocalStrategyOptions{
          .name = "MirroredStrategy",
          .devices = std::move(options.devices),
          .cross_device_ops = std::move(options.cross_device_ops),
          .check_copies = options.check_copies,
          .intra_op_threads = options.intra_op_threads});
}

CentralStorageStrategy::CentralStorageStrategy(CentralStorageOptions options) {
  std::vector<Device>& devices = options.compute_devices;
  if (devices.empty()) devices = default_devices();
  const Device central = options.parameter_device.value_or(default_parameter_device(devices));
  extended_ = std::make_shared<internal::strategy::LocalStrategy>(
      internal::strategy::LocalStrategyOptions{.name = "CentralStorageStrategy",
                                               .devices = devices,
                                               .intra_op_threads = options.intra_op_threads,
                                               .parameter_device = central});
}

OneDeviceStrategy::OneDeviceStrategy(const Device& device, OneDeviceOptions options) {
  extended_ = std::make_shared<internal::strategy::LocalStrategy>(
      internal::strategy::LocalStrategyOptions{.name = "OneDeviceStrategy",
                                               .devices = {device},
                                               .intra_op_threads = options.intra_op_threads});
}

}  // namespace cohort
