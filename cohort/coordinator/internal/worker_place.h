// SPDX-License-Identifier: Apache-2.0
//
// Where a worker of a job with parameter servers is, and whom it reaches.
#pragma once

#include "cohort/cluster/cluster_spec.h"
#include "cohort/rpc/security.h"

namespace cohort::internal::coordinator {

struct WorkerPlace {
  ClusterSpec spec = {};
  int worker = 0;
  rpc::RpcSecurity security = {};
};

}  // namespace cohort::internal::coordinator
