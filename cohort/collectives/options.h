// SPDX-License-Identifier: Apache-2.0
//
// How values of several replicas travel.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "cohort/reductions/reduce_op.h"

namespace cohort {

/// kAuto: the best there is. Looked at by strategies over several machines.
enum class CommunicationImplementation { kAuto, kRing, kNccl, kGloo, kMpi };

struct CommunicationOptions {
  int64_t bytes_per_pack = 0;  ///< 0: chosen by the library. Errors: negative.
  std::optional<std::chrono::milliseconds> timeout = {};  ///< nullopt: the health check decides.
  CommunicationImplementation implementation = CommunicationImplementation::kAuto;
};

}  // namespace cohort
