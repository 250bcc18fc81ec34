// SPDX-License-Identifier: Apache-2.0
//
// Internal: the devices of a group's replicas, as their threads need them. Where work is done when
// the call that asked for it returns, as on CPUs, that is nothing at all.
#pragma once

#include <memory>
#include <vector>

#include "cohort/runtime/device_backend.h"

namespace cohort::internal::runtime {

/// Threads: immutable. Cost: a branch where no device is asynchronous.
class GroupDevices {
 public:
  /// One for each replica, or none at all. Errors: as device_backend.
  explicit GroupDevices(std::vector<Device> devices) : devices_(std::move(devices)) {
    for (const Device& device : devices_) {
      asynchronous_ = device_backend(device).is_asynchronous() || asynchronous_;
    }
  }

  /// Makes the calling thread work on a replica's device while it lives.
  std::unique_ptr<DeviceGuard> enter(int replica) const {
    if (!asynchronous_) return nullptr;
    const Device& device = devices_[static_cast<std::size_t>(replica)];
    return device_backend(device).guard(device);
  }

  /// A meeting is publish(), all threads come, await_all().
  void publish(int replica) const {
    if (!asynchronous_) return;
    const Device& device = devices_[static_cast<std::size_t>(replica)];
    device_backend(device).publish(device);
  }
  /// What a caller's thread has started, before a run.
  void publish_all() const {
    if (!asynchronous_) return;
    for (const Device& device : devices_) device_backend(device).publish(device);
  }
  void await_all() const {
    if (!asynchronous_) return;
    for (const Device& device : devices_) device_backend(device).await(device);
  }

 private:
  const std::vector<Device> devices_;
  bool asynchronous_ = false;
};

}  // namespace cohort::internal::runtime
