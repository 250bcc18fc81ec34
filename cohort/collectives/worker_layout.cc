// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/worker_layout.h"

#include "cohort/collectives/communicator.h"

namespace cohort::internal::collectives {

ReplicaLayout layout_of(const Communicator& communicator, int local) {
  return ReplicaLayout(communicator.rank(), communicator.size(), local);
}

void take_turn(Communicator& communicator, const char* operation, base::FunctionRef<void()> body) {
  communicator.take_turn(operation, body);
}

}  // namespace cohort::internal::collectives
