// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/worker_layout.h"

#include <array>

#include "cohort/collectives/communicator.h"

namespace cohort::internal {

ReplicaLayout layout_of(const Communicator& communicator, int local) {
  return ReplicaLayout(communicator.rank(), communicator.size(), local);
}

int64_t sum_of_ranks(Communicator& communicator, int64_t here) {
  std::array<int64_t, 1> sum{here};
  communicator.all_reduce(bytes_of(sum), kInt64);
  return sum[0];
}

}  // namespace cohort::internal
