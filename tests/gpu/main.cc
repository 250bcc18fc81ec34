// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cohort/runtime/device.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!cohort::list_devices(cohort::DeviceKind::kGpu).empty()) {
    cohort::set_logical_device_configuration("GPU:0", {{}, {}});
  }
  return RUN_ALL_TESTS();
}
