// SPDX-License-Identifier: Apache-2.0
//
// How values of several replicas become one, and how they travel.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cohort {

/// TF: tf.distribute.ReduceOp has SUM and MEAN.
enum class ReduceOp { kSum, kMean, kMin, kMax, kProduct };

/// "sum", "MEAN", ... Errors: InvalidArgument for another name.
ReduceOp parse_reduce_op(std::string_view name);
/// "sum", "mean", "min", "max" or "product".
const char* reduce_op_name(ReduceOp op);

/// kAuto: the best there is. Looked at by strategies over several machines.
enum class CommunicationImplementation { kAuto, kRing, kNccl, kGloo, kMpi };

struct CommunicationOptions {
  int64_t bytes_per_pack = 0;  ///< 0: chosen by the library. Errors: negative.
  std::optional<std::chrono::milliseconds> timeout = {};  ///< nullopt: the health check decides.
  CommunicationImplementation implementation = CommunicationImplementation::kAuto;
};

}  // namespace cohort
