// SPDX-License-Identifier: Apache-2.0
//
// How values of several replicas travel.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "cohort/reductions/reduce_op.h"

namespace cohort {

/// What carries values between workers. kAuto: Cohort chooses. One process ignores it.
enum class CommunicationImplementation { kAuto, kRing, kNccl, kGloo, kMpi };

struct CommunicationOptions {
  int64_t bytes_per_pack = 0;  ///< 0: chosen by the library. Errors: negative.
  std::optional<std::chrono::milliseconds> timeout = {};  ///< Of waits for workers. Unset: 10 min.
  CommunicationImplementation implementation = CommunicationImplementation::kAuto;
};

}  // namespace cohort
