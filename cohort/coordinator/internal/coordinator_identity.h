// SPDX-License-Identifier: Apache-2.0
//
// Who a coordinator is among those of its job, which follow each other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cohort::internal::coordinator {

struct CoordinatorIdentity {
  uint64_t session = 0;     ///< Nobody else has had it.
  uint64_t generation = 0;  ///< Above that of all before it (parameters/generation_fence.h).
  uint64_t origin = 0;      ///< The session that it goes on with; 0: it begins anew.
};

/// What a task tells a coordinator before that begins.
struct NewestCoordinator {
  uint64_t generation = 0;  ///< The newest that has greeted it.
  uint64_t origin = 0;      ///< The session with which that one goes on, or its own; 0: none has.
};
inline uint64_t newest_generation(const std::vector<NewestCoordinator>& all) {
  uint64_t out = 0;
  for (const NewestCoordinator& each : all) out = std::max(out, each.generation);
  return out;
}

}  // namespace cohort::internal::coordinator
