// SPDX-License-Identifier: Apache-2.0
//
// Where a worker of a job with parameter servers is, and whom it reaches.
#pragma once

#include <cstdint>

#include "cohort/cluster/cluster_spec.h"
#include "cohort/coordinator/internal/sync_pushes.h"
#include "cohort/rpc/security.h"

namespace cohort::internal::coordinator {

struct WorkerPlace {
  ClusterSpec spec = {};
  int worker = 0;
  rpc::RpcSecurity security = {};
  uint64_t generation = 0;      ///< Of the chief whose functions run (generation_fence.h).
  SyncPushes sync_pushes = {};  ///< As the coordinator says with its functions.
};

}  // namespace cohort::internal::coordinator
