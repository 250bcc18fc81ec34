// SPDX-License-Identifier: Apache-2.0
//
// A share in what each worker has its own of: what PerWorkerValues holds.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace cohort::internal::coordinator {

class DroppedResources;

/// It is let go everywhere after the last one.
class ResourceHandle {
 public:
  ResourceHandle(std::shared_ptr<DroppedResources> dropped, uint64_t id)
      : dropped_(std::move(dropped)), id_(id) {}
  ~ResourceHandle();
  ResourceHandle(const ResourceHandle&) = delete;
  ResourceHandle& operator=(const ResourceHandle&) = delete;
  uint64_t id() const { return id_; }

 private:
  const std::shared_ptr<DroppedResources> dropped_;
  const uint64_t id_;
};

}  // namespace cohort::internal::coordinator
