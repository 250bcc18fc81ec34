// SPDX-License-Identifier: Apache-2.0
//
// For tests: a GPU that this machine need not have. Its memory is the host's, which faults where
// the host touches it; LibTorch's operations on it copy what they read to the CPU and back. So what
// works here asks no tensor of a device for its elements, mixes no devices, and runs backward
// passes where they belong.
//
//   testing::PretendedGpus gpus;
//   OneDeviceStrategy strategy("GPU:0");
#pragma once

#include <cstdint>
#include <memory>

namespace cohort::testing {

/// "GPU:n" of any n are such devices while it lives. Threads: one at a time, with no replica's.
class PretendedGpus {
 public:
  PretendedGpus();
  ~PretendedGpus();
  PretendedGpus(const PretendedGpus&) = delete;
  PretendedGpus& operator=(const PretendedGpus&) = delete;

  /// How often the host has waited for a device so far: to read elements of its tensors.
  int64_t waits() const;

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace cohort::testing
