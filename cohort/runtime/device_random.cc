// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/device_random.h"

#include "cohort/runtime/device_backend.h"

namespace cohort::internal::runtime {
namespace {

ByDeviceType<RandomFiller>& random_fillers() {
  static ByDeviceType<RandomFiller> table(nullptr, "random");
  return table;
}

}  // namespace

RandomFiller* random_filler(c10::DeviceType type) {
  return type == c10::kCPU ? nullptr : random_fillers().find(type);
}

}  // namespace cohort::internal::runtime
