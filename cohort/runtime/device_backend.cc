// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/device_backend.h"

#include "cohort/base/check.h"
#include "cohort/runtime/internal/cpu_backend.h"

namespace cohort::internal::runtime {
namespace {

ByDeviceType<DeviceBackend>& backends() {
  static ByDeviceType<DeviceBackend> table(&cpu_backend(), "backend");
  return table;
}

}  // namespace

DeviceBackend* find_device_backend(c10::DeviceType type) { return backends().find(type); }

const Device& host_device() {
  static const auto& device = *new Device("CPU:0");
  return device;
}

DeviceBackend& device_backend(const Device& device) {
  check_supported("[device] ", "devices", device);
  return *find_device_backend(device.at_device().type());
}

void check_supported(const char* operation, const char* what, const Device& device) {
  if (find_device_backend(device.at_device().type()) != nullptr) return;
  throw Unimplemented(str_cat(operation, "expected CPU ", what, ", got ", device.short_name(),
                              ": only CPUs are supported in this version"));
}

DeviceBackend* exchange_device_backend(c10::DeviceType type, DeviceBackend* backend) {
  return backends().exchange(type, backend);
}

void copy_memory(const Device& to, std::byte* destination, const Device& from,
                 const std::byte* source, std::size_t bytes) {
  // A CPU's knows no other devices.
  const Device& knows = to.kind() == DeviceKind::kCpu ? from : to;
  device_backend(knows).copy(to, destination, from, source, bytes);
}

Tensor tensor_on(const Device& device, const Tensor& tensor) {
  const c10::Device place = device_backend(device).place(device);
  return tensor.device() == place ? tensor : tensor.to(place);
}

Tensor copy_on(const Device& device, const Tensor& tensor) {
  const c10::Device place = device_backend(device).place(device);
  return tensor.device() == place ? tensor.clone() : tensor.to(place);
}

}  // namespace cohort::internal::runtime
