// SPDX-License-Identifier: Apache-2.0
//
// What the tests of GPU kernels have in common: a device with its guard, and comparisons that tell
// numbers.
#pragma once

#include <ATen/ops/view_as_real.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cohort/runtime/device_backend.h"
#include "cohort/runtime/tensor.h"

namespace cohort {

/// Skipped where there is no GPU; the test's thread works on GPU:0.
class GpuKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (list_devices(DeviceKind::kGpu).empty()) GTEST_SKIP() << "no GPU";
    guard_ = internal::runtime::device_backend(device_).guard(device_);
    place_ = internal::runtime::device_backend(device_).place(device_);
  }
  void TearDown() override { guard_.reset(); }

  Tensor on_gpu(const Tensor& x) const { return x.to(place_, x.scalar_type(), false, true); }
  /// The same numbers, `by` elements further from an aligned address.
  Tensor on_gpu_shifted(const Tensor& x, int64_t by) const {
    Tensor wide = on_gpu(zeros({x.numel() + by}, x.scalar_type()));
    wide.narrow(0, by, x.numel()).copy_(x);
    return wide.narrow(0, by, x.numel());
  }

  const Device device_ = "GPU:0";
  c10::Device place_ = c10::kCPU;

 private:
  std::unique_ptr<internal::runtime::DeviceGuard> guard_;
};

/// Normal numbers, or their absolute values.
inline Tensor normal_numbers(int64_t n, DType dtype, unsigned seed, bool positive = false) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& v : values) {
    v = normal(random);
    if (positive) v = std::fabs(v);
  }
  return from_vector<double>(values, {n}).to(dtype);
}

/// Equal to the bit, or within tolerance * (1 + |expected|); names the first that differs.
inline void expect_same(const Tensor& gpu, const Tensor& cpu, double tolerance,
                        const std::string& what) {
  const auto numbers = [](const Tensor& x) {
    const Tensor wide = x.is_complex() ? at::view_as_real(x.cpu()) : x.cpu();
    return to_vector<double>(wide.to(kFloat64));
  };
  const std::vector<double> got = numbers(gpu), expected = numbers(cpu);
  ASSERT_EQ(got.size(), expected.size()) << what;
  std::size_t different = 0, first = 0;
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool equal = got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]));
    if (equal || std::fabs(got[i] - expected[i]) <= tolerance * (1 + std::fabs(expected[i]))) {
      continue;
    }
    if (different++ == 0) first = i;
    most = std::fmax(most, std::fabs(got[i] - expected[i]));
  }
  EXPECT_EQ(different, 0U) << what << ": of " << got.size() << " elements so many differ, by up to "
                           << most << "; first " << first << ": GPU " << got[first] << ", CPU "
                           << expected[first];
}

}  // namespace cohort
