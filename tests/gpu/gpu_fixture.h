// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "cohort/runtime/device.h"

namespace cohort::gpu_tests {

/// Skips where there is no GPU. There are GPU:0 and GPU:1, of one card (main.cc).
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (list_devices(DeviceKind::kGpu).empty()) GTEST_SKIP() << "there is no GPU here";
  }
};

}  // namespace cohort::gpu_tests
