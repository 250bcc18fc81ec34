// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/strategies.h"

#include <utility>

#include "cohort/base/check.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/strategy/internal/local_strategy.h"

namespace cohort {

MirroredStrategy::MirroredStrategy(MirroredOptions options) {
  if (options.devices.empty()) options.devices = list_devices(DeviceKind::kCpu);
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
  if (devices.empty()) devices = list_devices(DeviceKind::kCpu);
  const Device central = options.parameter_device.value_or(
      devices.size() > 1 ? internal::runtime::host_device() : devices.front());
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
