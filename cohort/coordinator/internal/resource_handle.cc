// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/resource_handle.h"

#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/internal/coordinator_core.h"

namespace cohort::internal::coordinator {

ResourceHandle::~ResourceHandle() { dropped_->add(id_); }

std::vector<uint64_t> DroppedResources::take() {
  const base::MutexLock lock(mutex_);
  return std::exchange(ids_, {});
}

}  // namespace cohort::internal::coordinator
