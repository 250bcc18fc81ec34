// SPDX-License-Identifier: Apache-2.0
//
// A communicator's ranks as workers: what strategies ask of it besides tensors.
#pragma once

#include <cstdint>

#include "cohort/runtime/replica_layout.h"

namespace cohort::internal {

class Communicator;

/// This rank is the worker, and each has `local` replicas.
ReplicaLayout layout_of(const Communicator& communicator, int local);

/// The sum of what all ranks say. Order: an operation of the communicator.
int64_t sum_of_ranks(Communicator& communicator, int64_t here);

}  // namespace cohort::internal
