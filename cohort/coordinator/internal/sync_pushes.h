// SPDX-License-Identifier: Apache-2.0
//
// Several pushes of gradients that are one update (ParameterServerOptions::sync_replicas).
#pragma once

#include <cstdint>

namespace cohort::internal::coordinator {

/// How a job's pushes become updates.
struct SyncPushes {
  uint64_t needed = 0;  ///< For one update; 0: each is applied when it arrives.
  bool drops_late = true;
  bool is_on() const { return needed > 0; }
};

}  // namespace cohort::internal::coordinator
