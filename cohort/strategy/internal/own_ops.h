// SPDX-License-Identifier: Apache-2.0
//
// Reductions through a program's own CrossDeviceOps where there are several workers.
#pragma once

#include <span>
#include <vector>

#include "cohort/cross_device_ops/cross_device_ops.h"

namespace cohort::internal::collectives {
class Communicator;
}  // namespace cohort::internal::collectives
namespace cohort::internal::strategy {

/// What a program's own ops make of each item within this worker, then over the workers, in rank
/// order; the means are of all replicas. A copy per destination.
/// Errors: as CrossDeviceOps::batch_reduce(), reduce_across() and join_across().
std::vector<Mirrored<Gradient>> reduce_through(const char* operation, CrossDeviceOps& ops,
                                               collectives::Communicator& others, ReduceOp op,
                                               std::span<const ReduceItem> items,
                                               const CommunicationOptions& options = {});

/// In memory of their own.
IndexedSlices copy_of_slices(const IndexedSlices& rows);

}  // namespace cohort::internal::strategy
