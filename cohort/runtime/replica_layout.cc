// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/replica_layout.h"

#include <cstdint>
#include <ostream>

#include "cohort/base/check.h"

namespace cohort {

namespace {
constexpr int64_t kMostReplicas = 0x7FFF;  // as RandomStream has room for
}

ReplicaLayout::ReplicaLayout(int worker, int workers, int local)
    : worker_(worker), workers_(workers), local_(local) {
  COHORT_CHECK_ARG(workers >= 1, "[replica_layout] expected at least 1 worker, got ", workers);
  COHORT_CHECK_ARG(local >= 1, "[replica_layout] expected at least 1 replica on each worker, got ",
                   local);
  COHORT_CHECK_ARG(worker >= 0 && worker < workers, "[replica_layout] expected a worker from 0 to ",
                   workers - 1, ", got ", worker);
  COHORT_CHECK_ARG(int64_t{workers} * local <= kMostReplicas, "[replica_layout] expected at most ",
                   kMostReplicas, " replicas in all, got ", workers, " workers with ", local);
}

std::string ReplicaLayout::to_string() const {
  return str_cat("worker ", worker_, " of ", workers_, ", ", local_, " local replica",
                 local_ == 1 ? "" : "s");
}

std::ostream& operator<<(std::ostream& out, const ReplicaLayout& layout) {
  return out << layout.to_string();
}

void internal::runtime::check_one_worker(const char* operation, const ReplicaLayout& layout) {
  if (layout.workers() == 1) return;
  throw Unimplemented(
      str_cat(operation, "expected one worker, got ", layout,
              ": the strategy was made without a communicator, which is what reaches the "
              "other workers"));
}

}  // namespace cohort
