// SPDX-License-Identifier: Apache-2.0
#include "cohort/values/per_replica.h"

#include "cohort/base/check.h"

namespace cohort::internal {

void check_components(const char* operation, std::size_t size, int replicas) {
  COHORT_CHECK_ARG(size == static_cast<std::size_t>(replicas), "[", operation, "] expected ",
                   replicas, " values, got ", size);
}

void throw_not_one_value(std::size_t size) {
  if (size == 0) {
    throw FailedPrecondition("[per_replica] expected a value, got an empty PerReplica or Mirrored");
  }
  throw FailedPrecondition(str_cat(
      "[per_replica] expected one value in cross-replica context, got ", size,
      " different ones, one for each replica; use strategy.reduce or strategy.gather to make "
      "one of them, or strategy.local_results to see them all"));
}

void throw_out_of_range(const char* operation, std::size_t index, std::size_t size) {
  throw Error(ErrorCode::kOutOfRange, str_cat("[", operation, "] expected a local replica in [0, ",
                                              size, "), got ", index));
}

}  // namespace cohort::internal
