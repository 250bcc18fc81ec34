// SPDX-License-Identifier: Apache-2.0
//
// How values of several replicas travel.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "cohort/reductions/reduce_op.h"

namespace cohort {

/// What carries values between workers: see MultiWorkerMirroredOptions. One process ignores it.
enum class CommunicationImplementation { kAuto, kRing, kNccl, kGloo, kMpi };

struct CommunicationOptions {
  int64_t bytes_per_pack = 0;  ///< 0: chosen by the library. Errors: negative.
  std::optional<std::chrono::milliseconds> timeout = {};  ///< Of waits for workers. Unset: 10 min.
  CommunicationImplementation implementation = CommunicationImplementation::kAuto;
  /// Of a strategy: its optimizers' gradients travel between workers as bfloat16, half of the
  /// bytes. Each worker's are rounded to nearest, ties to even, and added in float32, in their
  /// order; rows of tables travel as they are. Errors: in one call's options, and with variables
  /// that are not float32.
  bool bfloat16_gradients = false;
};

namespace internal::collectives {
/// Of one call. Errors: InvalidArgument for what makes no sense in it.
void check_call_options(const char* operation, const CommunicationOptions& options);
}  // namespace internal::collectives

}  // namespace cohort
