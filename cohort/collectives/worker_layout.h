// SPDX-License-Identifier: Apache-2.0
//
// A communicator's ranks as workers: what headers of strategies ask of it.
#pragma once

#include "cohort/base/function_ref.h"
#include "cohort/runtime/replica_layout.h"

namespace cohort::internal::collectives {

class Communicator;

/// This rank is the worker, and each has `local` replicas.
ReplicaLayout layout_of(const Communicator& communicator, int local);

/// Communicator::take_turn(), for headers that need nothing else of it.
void take_turn(Communicator& communicator, const char* operation, base::FunctionRef<void()> body);

}  // namespace cohort::internal::collectives
