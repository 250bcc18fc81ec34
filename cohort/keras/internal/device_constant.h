// SPDX-License-Identifier: Apache-2.0
//
// A tensor of the host that steps on devices need: copied to each device once, so that later steps
// wait for nothing. Internal.
#pragma once

#include <utility>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// Threads: thread-safe. Owns: a copy for each device that has asked.
class DeviceConstant {
 public:
  /// The value where `like` is. `make` gives it on the host, the same each time. Blocks: until the
  /// copy is there, the first time on a device.
  template <class F>
  Tensor on(const Tensor& like, const F& make) {
    const cohort::internal::base::MutexLock lock(mutex_);
    for (const auto& [device, copy] : copies_) {
      if (device == like.device()) return copy;
    }
    copies_.emplace_back(like.device(), Tensor(make()).to(like.device()));
    return copies_.back().second;
  }

 private:
  cohort::internal::base::Mutex mutex_;
  std::vector<std::pair<c10::Device, Tensor>> copies_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort::keras::internal
