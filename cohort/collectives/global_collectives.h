// SPDX-License-Identifier: Apache-2.0
//
// Collectives among the replicas of all workers: group_collectives.h within each worker, a
// communicator between them. Every replica of every worker calls.
//
//   group.run([&](int replica) {
//     global_all_reduce(group, communicator, ReduceOp::kSum, leaves);
//   });
//
// Order: each worker reduces its replicas' values in their order, then workers are reduced in rank
// order; numbers, which are few, are all reduced in the order of all replicas. So W workers of one
// replica have the bits of one process with W. Rows are joined in the order of all replicas.
#pragma once

#include <span>
#include <vector>

#include "cohort/collectives/group_collectives.h"

namespace cohort::internal::collectives {

class Communicator;

/// As all_reduce_leaves() of a group. Order: a merge point, and in it operations of the
/// communicator. Errors: as there; FailedPrecondition if workers are at something else, or bring
///         other structures, shapes or dtypes: on all workers, naming both.
void global_all_reduce(runtime::ReplicaGroup& group, Communicator& communicator, ReduceOp op,
                       std::span<const CollectiveLeaf> leaves, const CollectiveOrigin& origin = {});

/// As all_gather_leaves() of a group; `sizes` are those of all replicas. Errors: as above.
void global_all_gather(runtime::ReplicaGroup& group, Communicator& communicator, int64_t axis,
                       std::span<const CollectiveLeaf> leaves,
                       std::span<std::vector<int64_t>> sizes = {},
                       const CollectiveOrigin& origin = {});

}  // namespace cohort::internal::collectives
